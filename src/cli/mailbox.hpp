#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cli/run_call.hpp"
#include "host/aligned_buffer.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {

/// What a rank's process leaves for its parent, in memory that both have mapped. Made before the
/// process is; written by it once; read by the parent when it has ended.
class Mailbox {
 public:
  enum class State : std::uint32_t { empty, done, failed };

  Mailbox(const RunRequest& request, const RunCase& run, int rank);

  void put(const RunOutput& output);
  void put_failure(ErrorCode code, const std::string& text);

  [[nodiscard]] State state() const { return head().state.load(std::memory_order_acquire); }
  [[nodiscard]] ErrorCode failure_code() const { return head().code; }
  [[nodiscard]] std::string failure_text() const { return head().text; }
  /// Adds what the rank left to the output of all ranks: its rows at the end, the slowest rank's
  /// times.
  void take(RunOutput& all) const;

 private:
  struct Head {
    std::atomic<State> state;
    ErrorCode code;
    std::int64_t rows_received;
    std::size_t memory_bytes;
    char text[4096];  ///< the configuration, or what went wrong
  };
  static_assert(std::atomic<State>::is_always_lock_free);

  [[nodiscard]] Head& head() const { return *reinterpret_cast<Head*>(memory_.data()); }
  void set_text(const std::string& text);

  std::size_t experts_, calls_, values_;
  std::size_t expert_rows_, times_, y_, differs_;  ///< offsets
  AlignedBuffer memory_;
};

}  // namespace megamoe::cli
