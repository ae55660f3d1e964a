#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "host/aligned_buffer.hpp"

namespace megamoe::join {

/// One process among all that this machine has run: its number may come again, with another start.
struct Process {
  pid_t number = 0;
  std::uint64_t start = 0;  ///< clock ticks since the machine's start; 0: unknown

  static Process own();
  /// False once it has ended, also while its parent has not yet taken notice.
  [[nodiscard]] bool is_running() const;
};

/// Tells which processes of a group have ended, where they share a machine with this one.
class ProcessWatch {
 public:
  /// What this process shows the others: machine and process.
  static std::string identity();

  ProcessWatch() = default;
  /// From the identities of all ranks. `board`: a word for each rank, shared by the processes of
  /// this machine, for those who leave in order; it is not empty.
  ProcessWatch(const std::vector<std::string>& identities, AlignedBuffer board);

  static std::size_t board_bytes(int ranks) {
    return sizeof(std::uint32_t) * static_cast<std::size_t>(ranks);
  }

  /// This rank's process goes on, or ends, without the group.
  void leave(int rank) const;

  /// Ranks whose process has ended without leaving, as far as can be seen.
  [[nodiscard]] std::vector<int> lost() const;
  /// Ranks that do not run on this machine.
  [[nodiscard]] std::vector<int> elsewhere() const;

 private:
  struct Rank {
    bool same_machine = false;
    bool visible = false;  ///< its number means the same here
    Process process;
  };
  [[nodiscard]] bool has_left(std::size_t rank) const;

  std::vector<Rank> ranks_;
  AlignedBuffer board_;
};

}  // namespace megamoe::join
