#include "sim/fibre.hpp"

#include <cstdint>
#include <vector>

namespace megamoe::sim {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;

/// Stacks of fibres that have ended, for the next ones: a run starts dozens.
std::vector<std::unique_ptr<char[]>>& spare_stacks() {
  static thread_local std::vector<std::unique_ptr<char[]>> stacks;
  return stacks;
}

}  // namespace

Fibre::~Fibre() {
  if (stack_ != nullptr) spare_stacks().push_back(std::move(stack_));
}

void Fibre::trampoline(unsigned high, unsigned low) {
  auto* self =
      reinterpret_cast<Fibre*>(static_cast<std::uintptr_t>(high) << 32U | std::uintptr_t{low});
  self->entry_(self->arg_);
}

void Fibre::prepare(void (*entry)(void*), void* arg) {
  auto& spare = spare_stacks();
  if (spare.empty()) {
    stack_.reset(new char[kStackBytes]);
  } else {
    stack_ = std::move(spare.back());
    spare.pop_back();
  }
  entry_ = entry;
  arg_ = arg;
  started_ = false;
}

void Fibre::switch_to(Fibre& from, Fibre& to) {
  // Only the first entry goes through a context: its system call for the signal mask would cost
  // more than all else that a step does.
  if (_setjmp(from.place_) != 0) return;
  if (to.started_) std::longjmp(to.place_, 1);
  to.started_ = true;
  getcontext(&to.start_);
  to.start_.uc_stack.ss_sp = to.stack_.get();
  to.start_.uc_stack.ss_size = kStackBytes;
  to.start_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(&to);
  makecontext(&to.start_, reinterpret_cast<void (*)()>(&Fibre::trampoline), 2,
              static_cast<unsigned>(self >> 32U), static_cast<unsigned>(self));
  setcontext(&to.start_);
}

}  // namespace megamoe::sim
