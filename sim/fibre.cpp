#include "sim/fibre.hpp"

#include <csetjmp>
#include <cstdint>
#include <utility>
#include <vector>

#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace megamoe::sim {

/// A stack and where its fibre is. One whose fibre has ended waits in the trampoline for the next.
struct Fibre::Context {
  static constexpr std::size_t kStackBytes = 128 * 1024;

  std::jmp_buf place = {};
  ucontext_t start = {};
  std::unique_ptr<char[]> stack;
  const void* bottom = nullptr;  // of the stack
  std::size_t size = 0;
  void* sanitizers = nullptr;  // what AddressSanitizer keeps of the fibre while another one runs
  bool is_running = true;      // the fibre that the OS started has neither stack nor entry
  void (*entry)(void*) = nullptr;
  void* arg = nullptr;
  static std::vector<std::unique_ptr<Context>>& spare() {
    static thread_local std::vector<std::unique_ptr<Context>> contexts;
    return contexts;
  }

  // AddressSanitizer has to know on which stack it is.
#ifdef __SANITIZE_ADDRESS__
  void leave_for(const Context& next) {
    left() = this;
    __sanitizer_start_switch_fiber(&sanitizers, next.bottom, next.size);
  }
  void arrive() {
    __sanitizer_finish_switch_fiber(sanitizers, &previous().bottom, &previous().size);
  }
  /// The fibre that was left last: the bounds of the OS's own stack are learned in this way.
  static Context*& left() {
    static thread_local Context* context = nullptr;
    return context;
  }
  static Context& previous() { return *left(); }
#else
  void leave_for(const Context& /*next*/) {}
  void arrive() {}
#endif
};

Fibre::Fibre() = default;

Fibre::~Fibre() {
  if (context_ != nullptr && context_->stack != nullptr)
    Context::spare().push_back(std::move(context_));
}

void Fibre::trampoline(unsigned high, unsigned low) {
  auto* self =
      reinterpret_cast<Context*>(static_cast<std::uintptr_t>(high) << 32U | std::uintptr_t{low});
  self->arrive();
  for (;;) self->entry(self->arg);
}

void Fibre::prepare(void (*entry)(void*), void* arg) {
  auto& spare = Context::spare();
  if (spare.empty()) {
    context_ = std::make_unique<Context>();
    context_->stack.reset(new char[Context::kStackBytes]);
    context_->bottom = context_->stack.get();
    context_->size = Context::kStackBytes;
    context_->is_running = false;
  } else {
    context_ = std::move(spare.back());
    spare.pop_back();
  }
  context_->entry = entry;
  context_->arg = arg;
}

void Fibre::switch_to(Fibre& from, Fibre& to) {
  if (from.context_ == nullptr) from.context_ = std::make_unique<Context>();
  Context* const self = from.context_.get();
  if (_setjmp(self->place) != 0) {
    self->arrive();
    return;
  }
  Context& next = *to.context_;
  self->leave_for(next);
  if (next.is_running) std::longjmp(next.place, 1);
  // Only the first use of a stack goes through a context: its system calls for the signal mask cost
  // more than all else that a step does.
  next.is_running = true;
  getcontext(&next.start);
  next.start.uc_stack.ss_sp = next.stack.get();
  next.start.uc_stack.ss_size = Context::kStackBytes;
  next.start.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(&next);
  makecontext(&next.start, reinterpret_cast<void (*)()>(&Fibre::trampoline), 2,
              static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
  setcontext(&next.start);
}

}  // namespace megamoe::sim
