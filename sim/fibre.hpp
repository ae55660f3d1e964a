#pragma once

#include <memory>

namespace megamoe::sim {

/// A thread of control that runs until it switches to another one. All fibres of a run share one
/// OS thread, so a run is a function of its seed.
class Fibre {
 public:
  Fibre();
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Gives the fibre a stack; its first switch_to calls entry(arg). Before entry returns it must
  /// have switched away for good: nobody may switch to the fibre after that.
  void prepare(void (*entry)(void*), void* arg);
  [[nodiscard]] bool prepared() const { return context_ != nullptr; }

  /// Leaves `from`, which is running, and continues `to`.
  static void switch_to(Fibre& from, Fibre& to);

 private:
  struct Context;
  static void trampoline(unsigned high, unsigned low);

  std::unique_ptr<Context> context_;
};

}  // namespace megamoe::sim
