#pragma once

// What every file of this folder needs. The folder holds one function per PTX instruction, for the
// instructions that cuda::ptx lacks or whose form there is awkward: no cache hints, generic
// pointers where a 32-bit shared address is at hand, waits without an end.

#include <cstdint>

#define MEGAMOE_DEVICE __device__ __forceinline__

// Bodies that only sm_90a can assemble (wgmma). Elsewhere they trap: no instance calls them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MEGAMOE_SM90A 1
#else
#define MEGAMOE_SM90A 0
#endif

namespace megamoe::ptx {

/// The 32-bit address of shared memory that PTX's shared::cta operands take.
MEGAMOE_DEVICE std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Nanoseconds of a clock that all SMs of a GPU share; its step may be as coarse as a microsecond.
MEGAMOE_DEVICE std::uint64_t globaltimer() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Ends the kernel with an error that its context does not survive.
[[noreturn]] MEGAMOE_DEVICE void trap() {
  __trap();
  __builtin_unreachable();
}

/// A value that the compiler may take as equal in all lanes: lane 0's.
MEGAMOE_DEVICE std::uint32_t warp_uniform(std::uint32_t value) {
  return __shfl_sync(0xFFFFFFFFU, value, 0);
}

}  // namespace megamoe::ptx
