#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/aligned_buffer.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe {
namespace {

[[noreturn]] void system_error(const std::string& what) {
  throw Error(ErrorCode::system, fmt::format("{}: {}", what, std::strerror(errno)));
}

/// Maps `bytes` of the named segment; creates it first if `create`.
AlignedBuffer map_segment(const std::string& name, std::size_t bytes, bool create) {
  const int file = shm_open(name.c_str(), create ? O_RDWR | O_CREAT : O_RDWR, 0600);
  if (file < 0) system_error(fmt::format("cannot open shared memory {}", name));
  if (create && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    system_error(fmt::format("cannot size shared memory {} to {} bytes", name, bytes));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    system_error(fmt::format("cannot map {} bytes of shared memory {}", bytes, name));
  return AlignedBuffer(static_cast<std::byte*>(memory), bytes);
}

/// Takes a segment's name away at the end of a scope, however that ends; its mappings stay.
struct Unlink {
  std::string name;
  ~Unlink() { shm_unlink(name.c_str()); }
};

/// What one process shows the others while they join.
struct Seat {
  static constexpr std::size_t kTextBytes = 2048;
  std::atomic<std::uint32_t> round;  ///< the last collective step whose text is complete
  std::atomic<std::int32_t> process;
  /// By step parity: whoever writes step n + 2 has seen all of step n + 1, so all have read step n.
  char text[2][kTextBytes];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One rank per process, over POSIX shared memory. Names disappear as soon as all have mapped them,
/// so a process that is killed leaves nothing behind.
class SharedMemory final : public SymmetricMemory {
 public:
  explicit SharedMemory(const SharedOptions& options)
      : options_(options),
        table_(map_segment(segment("join"), sizeof(Seat) * static_cast<std::size_t>(options.ranks),
                           true)) {
    const Unlink unlink{segment("join")};
    seat(options_.rank).process.store(getpid());
    SharedMemory::all_gather("");
  }

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  /// A process that leaves in order is not a lost one.
  ~SharedMemory() override { seat(options_.rank).process.store(0); }

  [[nodiscard]] int ranks() const override { return options_.ranks; }
  [[nodiscard]] std::vector<int> local_ranks() const override { return {options_.rank}; }
  [[nodiscard]] bool one_launch() const override { return false; }

  std::vector<std::string> all_gather(const std::string& text) override {
    if (text.size() >= Seat::kTextBytes) {
      throw Error(ErrorCode::invalid_argument, fmt::format("all_gather of {} bytes; the most is {}",
                                                           text.size(), Seat::kTextBytes - 1));
    }
    ++round_;
    Seat& own = seat(options_.rank);
    std::memcpy(own.text[round_ % 2], text.c_str(), text.size() + 1);
    own.round.store(round_, std::memory_order_release);
    const auto end = std::chrono::steady_clock::now() + options_.deadline;
    std::vector<std::string> texts;
    for (int r = 0; r < options_.ranks; ++r) {
      for (int look = 1; !has_come(r); ++look) {
        if (std::chrono::steady_clock::now() > end) throw_missing();
        if (look % kLooksPerCheck == 0) throw_if_lost(r);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      texts.emplace_back(seat(r).text[round_ % 2]);
    }
    return texts;
  }

  std::vector<std::byte*> allocate(std::size_t bytes) override {
    const auto name = [&](int rank) {
      return segment(
          fmt::format("{}.{}", regions_.size() / static_cast<std::size_t>(ranks()), rank));
    };
    const std::string own = name(options_.rank);
    const Unlink unlink{own};
    map_segment(own, bytes, true);  // lives on under its name until all have mapped it
    all_gather("");
    std::vector<std::byte*> bases;
    std::vector<AlignedBuffer> mapped;
    bases.reserve(static_cast<std::size_t>(options_.ranks));
    mapped.reserve(static_cast<std::size_t>(options_.ranks));
    for (int r = 0; r < options_.ranks; ++r) {
      mapped.push_back(map_segment(name(r), bytes, false));
      bases.push_back(mapped.back().data());
    }
    all_gather("");
    for (AlignedBuffer& region : mapped) regions_.push_back(std::move(region));
    return bases;
  }

  [[nodiscard]] std::vector<int> lost_ranks() const override {
    std::vector<int> lost;
    for (int r = 0; r < options_.ranks; ++r) {
      if (is_lost(r)) lost.push_back(r);
    }
    return lost;
  }

 private:
  [[nodiscard]] Seat& seat(int rank) const { return reinterpret_cast<Seat*>(table_.data())[rank]; }
  [[nodiscard]] std::string segment(const std::string& part) const {
    return fmt::format("/megamoe.{}.{}", options_.name, part);
  }

  /// False once the process has ended, also while its parent has not yet taken notice.
  static bool is_running(int process) {
    std::ifstream stat(fmt::format("/proc/{}/stat", process));
    std::string text;
    if (!std::getline(stat, text)) return false;
    // The state follows the name, which is in parentheses and may hold anything.
    const std::size_t name_end = text.rfind(") ");
    return name_end == std::string::npos ||
           (text[name_end + 2] != 'Z' && text[name_end + 2] != 'X');
  }

  /// True once rank `r` has made the current collective step.
  [[nodiscard]] bool has_come(int r) const {
    return static_cast<std::int32_t>(seat(r).round.load(std::memory_order_acquire) - round_) >= 0;
  }

  /// True if the process of rank `r` has ended without leaving in order.
  [[nodiscard]] bool is_lost(int r) const {
    const int process = seat(r).process.load();
    // It may leave and end between the two looks.
    return process != 0 && !is_running(process) && seat(r).process.load() == process;
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
    throw Error(
        ErrorCode::fault,
        fmt::format(
            "rank {}: ranks {} of {} did not come to step {} of joining within {} ms",
            options_.rank, fmt::join(missing, ", "), options_.ranks, round_,
            std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline).count()));
  }

  static constexpr int kLooksPerCheck = 200;  // whether a process runs is a file's content

  SharedOptions options_;
  AlignedBuffer table_;
  std::vector<AlignedBuffer> regions_;
  std::uint32_t round_ = 0;
};

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::shared(const SharedOptions& o) {
  if (o.ranks < 1 || o.ranks > kMaxRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ranks = {} is outside 1..{}", o.ranks, kMaxRanks));
  }
  if (o.rank < 0 || o.rank >= o.ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank = {} is outside 0..{}", o.rank, o.ranks - 1));
  }
  if (o.name.empty() || o.name.find('/') != std::string::npos || o.name.size() > 200) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("group name '{}' must have 1 to 200 characters and no '/'", o.name));
  }
  return std::make_unique<SharedMemory>(o);
}

}  // namespace megamoe
