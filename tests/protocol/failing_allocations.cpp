#include "tests/protocol/failing_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include <pthread.h>

namespace {

std::atomic<long> allocations_left = -1;  ///< negative: none fails
std::atomic<pthread_t> spared;

void* allocate(std::size_t bytes) {
  if (allocations_left.load() >= 0 && pthread_self() != spared.load() &&
      allocations_left.fetch_sub(1) == 0)
    throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not in a program's other sources: a compiler that sees both ends takes free for a mistake.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace megamoe {

void let_allocations_fail_after(long count) {
  spared = pthread_self();
  allocations_left = count;
}

bool an_allocation_failed() { return allocations_left.exchange(-1) < 0; }

}  // namespace megamoe
