#include <atomic>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "host/join/meeting.hpp"
#include "host/join/process_watch.hpp"
#include "host/join/segment.hpp"

namespace megamoe::join {
namespace {

/// What one process shows the others.
struct Seat {
  static constexpr std::size_t kTextBytes = 16 * 1024;
  std::atomic<std::uint32_t> round;  ///< the last collective step whose text is complete
  std::atomic<std::int32_t> process;
  /// By step parity: whoever writes step n + 2 has seen all of step n + 1, so all have read step n.
  std::uint32_t size[2];
  char text[2][kTextBytes];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Over a table in POSIX shared memory. Its name disappears as soon as all have mapped it, so a
/// process that is killed leaves nothing behind.
class SeatMeeting final : public Meeting {
 public:
  explicit SeatMeeting(const JoinOptions& options) : options_(options) {
    const SegmentName name(segment());
    const std::size_t seats = static_cast<std::size_t>(options.ranks);
    table_ = map_segment(name.text(), sizeof(Seat) * seats, true);
    seat(options_.rank).process.store(Process::own().number);
    SeatMeeting::all_gather("");
  }

  SeatMeeting(const SeatMeeting&) = delete;
  SeatMeeting& operator=(const SeatMeeting&) = delete;
  /// A process that leaves in order is not a lost one.
  ~SeatMeeting() override { seat(options_.rank).process.store(0); }

  std::vector<std::string> all_gather(const std::string& text) override {
    if (text.size() > Seat::kTextBytes) {
      throw Error(ErrorCode::invalid_argument, fmt::format("all_gather of {} bytes; the most is {}",
                                                           text.size(), Seat::kTextBytes));
    }
    ++round_;
    const std::uint32_t parity = round_ % 2;
    Seat& own = seat(options_.rank);
    std::memcpy(own.text[parity], text.data(), text.size());
    own.size[parity] = static_cast<std::uint32_t>(text.size());
    own.round.store(round_, std::memory_order_release);
    const auto end = std::chrono::steady_clock::now() + options_.deadline;
    std::vector<std::string> texts;
    for (int r = 0; r < options_.ranks; ++r) {
      for (int look = 1; !has_come(r); ++look) {
        if (std::chrono::steady_clock::now() > end) throw_missing();
        if (look % kLooksPerCheck == 0) throw_if_lost(r);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      texts.emplace_back(seat(r).text[parity], seat(r).size[parity]);
    }
    return texts;
  }

 private:
  [[nodiscard]] Seat& seat(int rank) const { return reinterpret_cast<Seat*>(table_.data())[rank]; }
  [[nodiscard]] std::string segment() const {
    return fmt::format("/megamoe.{}.join", options_.name);
  }

  /// True once rank `r` has made the current collective step.
  [[nodiscard]] bool has_come(int r) const {
    return static_cast<std::int32_t>(seat(r).round.load(std::memory_order_acquire) - round_) >= 0;
  }

  /// True if the process of rank `r` has ended without leaving in order.
  [[nodiscard]] bool is_lost(int r) const {
    const std::int32_t process = seat(r).process.load();
    // It may leave and end between the two looks.
    return process != 0 && !Process{process, 0}.is_running() && seat(r).process.load() == process;
  }

  /// A process that has ended will never come.
  void throw_if_lost(int r) const {
    if (!is_lost(r) || has_come(r)) return;
    throw Error(ErrorCode::fault,
                fmt::format("rank {}: the process of rank {} has ended before step {} of joining",
                            options_.rank, r, round_));
  }

  [[noreturn]] void throw_missing() const {
    std::vector<int> missing;
    for (int r = 0; r < options_.ranks; ++r) {
      if (!has_come(r)) missing.push_back(r);
    }
    throw Error(ErrorCode::fault,
                fmt::format("rank {}: {}", options_.rank, missing_text(missing, options_, round_)));
  }

  static constexpr int kLooksPerCheck = 200;  // whether a process runs is a file's content

  JoinOptions options_;
  AlignedBuffer table_;
  std::uint32_t round_ = 0;
};

}  // namespace

std::unique_ptr<Meeting> meet_in_shared_memory(const JoinOptions& options) {
  return std::make_unique<SeatMeeting>(options);
}

}  // namespace megamoe::join
