#pragma once

#include "ptx/device.cuh"
#include "ptx/wgmma_bf16.cuh"
#include "ptx/wgmma_e4m3.cuh"

// The warpgroup matrix instructions' companions; the products themselves are generated
// (tools/gen_wgmma.py). All are executed by the four warps of a warpgroup together.

namespace megamoe::ptx {

/// Orders register and shared-memory accesses before the products that follow.
MEGAMOE_DEVICE void wgmma_fence() {
#if MEGAMOE_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

MEGAMOE_DEVICE void wgmma_commit_group() {
#if MEGAMOE_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/// Waits until at most kPending groups are incomplete.
template <int kPending>
MEGAMOE_DEVICE void wgmma_wait_group() {
#if MEGAMOE_SM90A
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

/// Keeps the compiler from moving reads or writes of an accumulator across this point: after a wait
/// and before the accumulator is read, before the fence and after it was written.
template <int kRegisters>
MEGAMOE_DEVICE void wgmma_pin(float (&d)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Matrix descriptor of a K-major operand with the 128-byte swizzle (8 rows of 128 bytes per atom,
/// atoms 1024 bytes apart), at a shared address that is a multiple of 1024. `address` must be equal
/// in all lanes and be known so to the compiler (warp_uniform), or the descriptor travels through
/// vector registers between the products. The next 32 bytes of K are descriptor + 2.
MEGAMOE_DEVICE std::uint64_t k_major_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kLeading = std::uint64_t{1} << 16;
  constexpr std::uint64_t kStride1024 = std::uint64_t{64} << 32;
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | kStride1024 | kLeading | ((address & 0x3FFFFU) >> 4);
}

}  // namespace megamoe::ptx
