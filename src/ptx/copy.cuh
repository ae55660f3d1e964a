#pragma once

#include <cuda.h>

#include "ptx/device.cuh"

// Asynchronous copies with L2 cache hints. Loads complete on an mbarrier, stores in bulk groups.
// Global addresses and sizes of bulk copies are multiples of 16 bytes; tensor tiles with the
// 128-byte swizzle start at shared addresses that are multiples of 1024.

namespace megamoe::ptx {

/// How L2 treats the lines of a copy; made by one of the three functions below.
struct CachePolicy {
  std::uint64_t bits;
};

MEGAMOE_DEVICE CachePolicy evict_first_policy() {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

MEGAMOE_DEVICE CachePolicy evict_last_policy() {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

MEGAMOE_DEVICE CachePolicy evict_normal_policy() {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

/// Global to shared.
MEGAMOE_DEVICE void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                              std::uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy.bits)
      : "memory");
}

/// Shared to global, also to a peer's memory.
MEGAMOE_DEVICE void bulk_store(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}

MEGAMOE_DEVICE void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most kPending of this thread's bulk groups have not yet read their source.
template <int kPending>
MEGAMOE_DEVICE void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Waits until at most kPending of this thread's bulk groups are incomplete.
template <int kPending>
MEGAMOE_DEVICE void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Brings bytes into L2 only.
MEGAMOE_DEVICE void bulk_prefetch_l2(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// A box of a 2-D tensor map; coordinates innermost first, in elements.
MEGAMOE_DEVICE void tensor_load_2d(std::uint32_t to, const CUtensorMap* map, int x, int y,
                                   std::uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy.bits)
      : "memory");
}

/// A box of a 3-D tensor map.
MEGAMOE_DEVICE void tensor_load_3d(std::uint32_t to, const CUtensorMap* map, int x, int y, int z,
                                   std::uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy.bits)
      : "memory");
}

/// Four bytes, global to shared, by the generic proxy; completes with this thread's cp.async.
MEGAMOE_DEVICE void cp_async_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/// Orders this thread's generic accesses against async-proxy accesses to the same memory.
MEGAMOE_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace megamoe::ptx
