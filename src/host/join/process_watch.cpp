#include "host/join/process_watch.hpp"

#include <array>
#include <atomic>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

namespace megamoe::join {
namespace {

/// The state and the start of a process, or nothing once it is gone.
struct Stat {
  char state = 0;
  std::uint64_t start = 0;
};

bool read_stat(pid_t number, Stat& stat) {
  constexpr int kStateToStart = 19;  // fields of /proc/N/stat from the state to the start
  std::ifstream file(fmt::format("/proc/{}/stat", number));
  std::string text;
  if (!std::getline(file, text)) return false;
  // The state follows the name, which is in parentheses and may hold anything.
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 2));
  rest >> stat.state;
  std::string skipped;
  for (int i = 1; i < kStateToStart; ++i) rest >> skipped;
  rest >> stat.start;
  return static_cast<bool>(rest);
}

/// The machine's present run; empty where the system does not tell.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text.empty() ? "unknown" : text;
}

/// Within which process numbers mean the same.
std::string number_space() {
  std::array<char, 64> name{};
  const ssize_t size = readlink("/proc/self/ns/pid", name.data(), name.size());
  return size <= 0 ? "unknown" : std::string(name.data(), static_cast<std::size_t>(size));
}

}  // namespace

Process Process::own() {
  Stat stat;
  read_stat(getpid(), stat);
  return {getpid(), stat.start};
}

bool Process::is_running() const {
  Stat stat;
  if (!read_stat(number, stat)) return false;
  if (start != 0 && stat.start != start) return false;
  return stat.state != 'Z' && stat.state != 'X';
}

std::string ProcessWatch::identity() {
  const Process own = Process::own();
  return fmt::format("{} {} {} {}", machine(), number_space(), own.number, own.start);
}

ProcessWatch::ProcessWatch(const std::vector<std::string>& identities, AlignedBuffer board)
    : board_(std::move(board)) {
  const std::string here = machine(), space = number_space();
  for (const std::string& identity : identities) {
    std::istringstream fields(identity);
    std::string its_machine, its_space;
    Rank rank;
    fields >> its_machine >> its_space >> rank.process.number >> rank.process.start;
    rank.same_machine = its_machine == here;
    rank.visible = fields && rank.same_machine && its_space == space;
    ranks_.push_back(rank);
  }
}

void ProcessWatch::leave(int rank) const {
  if (board_.data() == nullptr) return;
  auto* const words = reinterpret_cast<std::uint32_t*>(board_.data());
  std::atomic_ref<std::uint32_t>(words[rank]).store(1);
}

bool ProcessWatch::has_left(std::size_t rank) const {
  auto* const words = reinterpret_cast<std::uint32_t*>(board_.data());
  return std::atomic_ref<std::uint32_t>(words[rank]).load() != 0;
}

std::vector<int> ProcessWatch::lost() const {
  std::vector<int> lost;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].visible || has_left(r) || ranks_[r].process.is_running()) continue;
    // It may leave and end between the two looks.
    if (!has_left(r)) lost.push_back(static_cast<int>(r));
  }
  return lost;
}

std::vector<int> ProcessWatch::elsewhere() const {
  std::vector<int> others;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].same_machine) others.push_back(static_cast<int>(r));
  }
  return others;
}

}  // namespace megamoe::join
