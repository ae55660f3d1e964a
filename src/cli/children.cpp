#include "cli/children.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookEvery = std::chrono::milliseconds(2);

[[noreturn]] void run_child(int index, pid_t parent, const std::function<void(int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before it could be noticed.
  if (getppid() == parent) body(index);
  _exit(0);
}

std::string trouble_text(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({})", number, strsignal(number));
  }
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Children::Children(int count, const std::function<void(int)>& body)
    : trouble_(static_cast<std::size_t>(count)) {
  const pid_t parent = getpid();
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) run_child(i, parent, body);
    if (child < 0) {
      const int reason = errno;
      kill_all();
      throw Error(ErrorCode::system, fmt::format("cannot make process {} of {}: {}", i + 1, count,
                                                 std::strerror(reason)));
    }
    running_.push_back(child);
  }
}

Children::~Children() { kill_all(); }

void Children::kill_all() {
  for (pid_t& child : running_) {
    if (child == 0) continue;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    child = 0;
  }
}

bool Children::reap() {
  bool any = false;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    int status = 0;
    if (running_[i] == 0 || waitpid(running_[i], &status, WNOHANG) == 0) continue;
    running_[i] = 0;
    trouble_[i] = trouble_text(status);
    any = true;
  }
  return any;
}

void Children::join(std::chrono::nanoseconds patience) {
  std::optional<Clock::time_point> end;
  const auto runs = [](pid_t child) { return child != 0; };
  while (std::any_of(running_.begin(), running_.end(), runs)) {
    if (reap() && !end) end = Clock::now() + patience;
    if (end && Clock::now() > *end) {
      for (std::size_t i = 0; i < running_.size(); ++i) {
        if (running_[i] == 0) continue;
        trouble_[i] = fmt::format("did not end within {:.3g} s of the first and was killed",
                                  std::chrono::duration<double>(patience).count());
      }
      kill_all();
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace megamoe::cli
