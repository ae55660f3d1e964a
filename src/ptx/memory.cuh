#pragma once

#include "ptx/device.cuh"

// 16-byte loads and stores of data that other SMs or peers write while the kernel runs: coherent
// (no read-only path), ordered by the acquire that came before.

namespace megamoe::ptx {

/// Read once: takes no place in L1.
MEGAMOE_DEVICE uint4 load_16(const void* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

MEGAMOE_DEVICE void store_16(void* to, const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

/// Brings the line of an address into L2.
MEGAMOE_DEVICE void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

}  // namespace megamoe::ptx
