#include "host/join/meeting.hpp"

#include <array>
#include <cstdint>

#include <fmt/format.h>
#include <sys/random.h>

#include "config/refuse.hpp"
#include "megamoe/error.hpp"

namespace megamoe::join {
namespace {

constexpr int kMaxPort = 65535;
constexpr std::size_t kMaxName = 200;

/// A meeting through the caller's own collective.
class CallerMeeting final : public Meeting {
 public:
  explicit CallerMeeting(const JoinOptions& options)
      : gather_(options.all_gather), ranks_(static_cast<std::size_t>(options.ranks)) {}

  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> texts = gather_(text);
    if (texts.size() != ranks_) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("the caller's all_gather gave {} texts for {} ranks", texts.size(), ranks_));
    }
    return texts;
  }

 private:
  AllGather gather_;
  std::size_t ranks_;
};

void check_options(const JoinOptions& o) {
  if (o.ranks < 1 || o.ranks > kMaxRanks)
    refuse(fmt::format("ranks = {} is outside 1..{}", o.ranks, kMaxRanks));
  if (o.rank < 0 || o.rank >= o.ranks)
    refuse(fmt::format("rank = {} is outside 0..{}", o.rank, o.ranks - 1));
  if (o.deadline.count() <= 0)
    refuse(fmt::format("deadline = {} ns must be positive", o.deadline.count()));
  if (o.deadline > kMaxDeadline) {
    refuse(fmt::format("deadline = {} ns is more than {} ns (100 hours)", o.deadline.count(),
                       kMaxDeadline.count()));
  }
  if (o.all_gather) return;
  if (!o.address.empty()) {
    if (o.port < 1 || o.port > kMaxPort)
      refuse(fmt::format("port = {} is outside 1..{}", o.port, kMaxPort));
    return;
  }
  if (o.name.empty() || o.name.find('/') != std::string::npos || o.name.size() > kMaxName) {
    refuse(
        fmt::format("group name '{}' must have 1 to {} characters and no '/'", o.name, kMaxName));
  }
}

}  // namespace

std::unique_ptr<Meeting> meet(const JoinOptions& options) {
  check_options(options);
  if (options.all_gather) return std::make_unique<CallerMeeting>(options);
  if (!options.address.empty()) return meet_over_tcp(options);
  return meet_in_shared_memory(options);
}

std::string missing_text(const std::vector<int>& missing, const JoinOptions& options,
                         unsigned step) {
  return fmt::format(
      "ranks {} of {} did not come to step {} of joining within {} ms", fmt::join(missing, ", "),
      options.ranks, step,
      std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline).count());
}

std::string random_name() {
  std::array<std::uint64_t, 2> bits{};
  if (getrandom(bits.data(), sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits)))
    throw Error(ErrorCode::system, "the system gives no random bits");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace megamoe::join
