#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace megamoe::cli {

/// Child processes of this one. They die with it, and with this object.
class Children {
 public:
  /// Forks `count` children that run body(0), body(1), ... and then end with status 0. Throws
  /// Error(system) if the system gives no process.
  Children(int count, const std::function<void(int)>& body);
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();

  /// Waits for all of them; whoever still runs `patience` after the first has ended is killed.
  void join(std::chrono::nanoseconds patience);

  /// How child `index` ended if not with status 0, as in "was ended by signal 9 (Killed)"; else
  /// nothing.
  [[nodiscard]] const std::string& trouble(int index) const {
    return trouble_[static_cast<std::size_t>(index)];
  }

 private:
  void kill_all();
  /// True if a child that ran has ended.
  bool reap();

  std::vector<pid_t> running_;  ///< 0: has ended
  std::vector<std::string> trouble_;
};

}  // namespace megamoe::cli
