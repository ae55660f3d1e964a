#pragma once

#include "ptx/device.cuh"

// Registers, launch order and small warp-level instructions.

namespace megamoe::ptx {

/// This thread's number in its warp, read anew each time: cheaper than a register kept for it.
MEGAMOE_DEVICE int lane_id() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Lowers this warpgroup's register cap; every warp of the warpgroup executes it.
template <int kRegisters>
MEGAMOE_DEVICE void setmaxnreg_dec() {
#if MEGAMOE_SM90A
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  __trap();
#endif
}

/// Raises it, waiting until the CTA's pool has that many.
template <int kRegisters>
MEGAMOE_DEVICE void setmaxnreg_inc() {
#if MEGAMOE_SM90A
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  __trap();
#endif
}

/// Waits until the kernels that this one depends on have ended and their writes are visible.
MEGAMOE_DEVICE void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Transposes an 8x8 matrix of 16-bit elements across the warp: lane 4*r + c/2 holds elements
/// (r, c), c even in the low half, before and after.
MEGAMOE_DEVICE std::uint32_t movmatrix_transpose(std::uint32_t elements) {
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(elements));
  return transposed;
}

/// A barrier among `threads` threads of the CTA, a multiple of 32; id 1..15 (0 is __syncthreads).
MEGAMOE_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Two floats to e4m3, round to nearest even, saturating at +-448; `low` in the low byte.
MEGAMOE_DEVICE std::uint32_t to_e4m3x2(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// Two floats to BF16, round to nearest even; `low` in the low half.
MEGAMOE_DEVICE std::uint32_t to_bf16x2(float low, float high) {
  std::uint32_t halves;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
}

/// The smaller and the larger of two floats; NaN if either is.
MEGAMOE_DEVICE float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

MEGAMOE_DEVICE float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// 2^x with the hardware's error of 2 ulp; results below 2^-126 become 0.
MEGAMOE_DEVICE float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1/x with the hardware's error of 1 ulp.
MEGAMOE_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace megamoe::ptx
