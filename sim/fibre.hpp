#pragma once

#include <csetjmp>
#include <memory>

#include <ucontext.h>

namespace megamoe::sim {

/// A thread of control that runs until it switches to another one. All fibres of a run share one
/// OS thread, so a run is a function of its seed.
class Fibre {
 public:
  Fibre() = default;
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Gives the fibre a stack; its first switch_to calls entry(arg), which must never return.
  void prepare(void (*entry)(void*), void* arg);
  [[nodiscard]] bool prepared() const { return stack_ != nullptr; }

  /// Leaves `from`, which is running, and continues `to`.
  static void switch_to(Fibre& from, Fibre& to);

 private:
  static void trampoline(unsigned high, unsigned low);

  std::jmp_buf place_ = {};
  ucontext_t start_ = {};
  std::unique_ptr<char[]> stack_;
  void (*entry_)(void*) = nullptr;
  void* arg_ = nullptr;
  bool started_ = true;  // the fibre that the OS started has no entry
};

}  // namespace megamoe::sim
