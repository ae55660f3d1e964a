#include "cli/bench_release.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace megamoe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHostDeadline(20);
/// Longer than the host's, so that the host's words are the ones that are read.
constexpr std::chrono::nanoseconds kDeviceDeadline = std::chrono::seconds(30);

}  // namespace

Releaser::Releaser(int streams) : streams_(streams), words_(sizeof(ReleaseWords)) {}

Releaser::~Releaser() { let_go(); }

void Releaser::let_go() { words().go = 1; }

volatile ReleaseWords& Releaser::words() const {
  return *reinterpret_cast<ReleaseWords*>(words_.host());
}

void Releaser::hold(int i, cudaStream_t stream) {
  cuda::check(launch_release(reinterpret_cast<ReleaseWords*>(words_.device()), i,
                             static_cast<std::uint64_t>(kDeviceDeadline.count()), stream),
              "launching the kernel that waits for its release");
}

void Releaser::prepare() { std::memset(words_.host(), 0, sizeof(ReleaseWords)); }

void Releaser::wait_for(const volatile std::uint32_t& word, int i, const char* what) const {
  const Clock::time_point deadline = Clock::now() + kHostDeadline;
  while (word == 0) {
    if (Clock::now() > deadline) {
      throw Error(ErrorCode::fault, fmt::format("stream {} {} within {} s", i, what,
                                                std::chrono::seconds(kHostDeadline).count()));
    }
  }
}

double Releaser::release() {
  for (int i = 0; i < streams_; ++i) wait_for(words().arrived[i], i, "did not come to its release");
  const Clock::time_point start = Clock::now();
  words().go = 1;
  std::vector<double> gone(static_cast<std::size_t>(streams_), -1);
  for (int left = streams_; left > 0;) {
    for (int i = 0; i < streams_; ++i) {
      double& us = gone[static_cast<std::size_t>(i)];
      if (us >= 0 || words().released[i] == 0) continue;
      us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      --left;
    }
    if (left > 0 && Clock::now() - start > kHostDeadline)
      throw Error(ErrorCode::fault, fmt::format("{} streams did not see their release", left));
  }
  for (int i = 0; i < streams_; ++i) {
    if (words().expired[i] != 0)
      throw Error(ErrorCode::fault, fmt::format("stream {} gave up waiting for its release", i));
  }
  const auto [first, last] = std::minmax_element(gone.begin(), gone.end());
  return *last - *first;
}

}  // namespace megamoe::cli
