#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megamoe::sim {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// A vector clock: for every clock slot, how many of its steps are in the past.
class Clock {
 public:
  Clock() = default;
  explicit Clock(std::size_t slots) : steps_(slots, 0) {}

  [[nodiscard]] bool has(u32 slot, u32 step) const { return steps_[slot] >= step; }
  u32 tick(u32 slot) { return ++steps_[slot]; }
  void join(const Clock& other) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (other.steps_[i] > steps_[i]) steps_[i] = other.steps_[i];
    }
  }
  [[nodiscard]] bool includes(const Clock& other) const {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (other.steps_[i] > steps_[i]) return false;
    }
    return true;
  }

 private:
  std::vector<u32> steps_;
};

/// What an agent may rely on. A step in `past` happened before; one in `to_async` is also visible
/// to asynchronous accesses that follow, because a proxy fence stands between; one in `to_generic`
/// likewise to generic accesses. Both are parts of `past`.
struct View {
  Clock past;
  Clock to_async;
  Clock to_generic;

  View() = default;
  explicit View(std::size_t slots) : past(slots), to_async(slots), to_generic(slots) {}
  void join(const View& other) {
    past.join(other.past);
    to_async.join(other.to_async);
    to_generic.join(other.to_generic);
  }
  [[nodiscard]] bool includes(const View& other) const {
    return past.includes(other.past) && to_async.includes(other.to_async) &&
           to_generic.includes(other.to_generic);
  }
  /// The start and the end of a kernel order everything, whichever proxy did it.
  void fence_all() { to_async = to_generic = past; }
};

}  // namespace megamoe::sim
