#pragma once

#include "ptx/device.cuh"

// mbarriers in this CTA's shared memory, by 32-bit address.

namespace megamoe::ptx {

/// How long a wait may last before it gives up.
struct Patience {
  std::uint64_t ns;
};

MEGAMOE_DEVICE void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to the async proxy; before the CTA-wide barrier that ends the
/// initialisation.
MEGAMOE_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives once; releases this thread's earlier accesses to the CTA.
MEGAMOE_DEVICE void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives once and lets the phase wait for `bytes` more of bulk copies.
MEGAMOE_DEVICE void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Arrives once when all cp.async copies that this thread has issued are done. The arrival is one
/// of those counted at initialisation.
MEGAMOE_DEVICE void cp_async_mbarrier_arrive_noinc(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// True once the phase of the given parity has completed; acquires what its arrivals released.
/// Suspends the thread for a while that the hardware bounds.
MEGAMOE_DEVICE bool mbarrier_try_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// The same without suspending.
MEGAMOE_DEVICE bool mbarrier_test_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Waits for the phase of the given parity; false when patience ran out first. The clock is read
/// only when the phase is not complete at once.
MEGAMOE_DEVICE bool mbarrier_wait(std::uint32_t barrier, std::uint32_t parity, Patience patience) {
  if (mbarrier_try_wait_parity(barrier, parity)) return true;
  const std::uint64_t started = globaltimer();
  while (!mbarrier_try_wait_parity(barrier, parity)) {
    if (globaltimer() - started >= patience.ns) return false;
  }
  return true;
}

}  // namespace megamoe::ptx
