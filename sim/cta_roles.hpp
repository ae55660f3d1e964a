#pragma once

#include "sim/cta_shared.hpp"

namespace megamoe::sim {

/// What a CTA of the fused kernel does, composed as src/kernels/fused_moe.cuh and the files of
/// src/roles/ are; the scheduler is in cta_scheduler.hpp. Warps that act as one are one agent: all
/// of a CTA while it routes and plans, the consumer warps as `math`. Each returns false once its
/// call was aborted.
struct CtaRoles {
  /// The whole CTA: claims route tickets, from the first one before it may start.
  static bool route(SimCall& c, Work& work);
  /// A courier's warp: claims the next chunk ahead; entries of a chunk, then its pool slot, then
  /// rows, then rows_ready.
  static bool pull(SimCall& c, CtaShared& shared, Work& work);
  /// Consumer warps: tiles from the ring of operands; results; the done ring.
  static bool math(SimCall& c, CtaShared& shared, Work& work);
  /// Clears the other parity, then the done ring: l1_done; arrived, then l2_done.
  static bool publish(SimCall& c, CtaShared& shared, Work& work);
  /// Every role's tail: claims the next piece of a token ahead; waits for all contributions once.
  static bool sum(SimCall& c, const CtaShared& shared, Work& work);
};

}  // namespace megamoe::sim
