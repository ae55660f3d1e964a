#pragma once

#include "ptx/warp.cuh"
#include "roles/ring.cuh"

// Who a consumer thread is, and what both main loops do once per stage.

namespace megamoe {

/// Where a consumer thread stands. Fragment rows are g and g + 8 of its warp's 16 rows in a 64-row
/// tile; columns are 8 * j + 2 * q and the next.
struct ConsumerThread {
  int warpgroup;  ///< among the consumers; equal in the whole warp
  int warp;       ///< of the warpgroup
  static MEGAMOE_DEVICE int lane() { return ptx::lane_id(); }
  static MEGAMOE_DEVICE int g() { return lane() >> 2; }
  static MEGAMOE_DEVICE int q() { return lane() & 3; }
};

/// For thread `index` of the consumers (they start at a warpgroup's boundary).
MEGAMOE_DEVICE ConsumerThread consumer_thread(int index) {
  return {.warpgroup = static_cast<int>(ptx::warp_uniform(static_cast<std::uint32_t>(index) / 128)),
          .warp = (index / 32) % 4};
}

/// One arrival of this warp on a stage's empty barrier, after all its lanes are done with the
/// stage.
MEGAMOE_DEVICE void release_stage(std::uint32_t empty) {
  __syncwarp();
  if (ptx::lane_id() == 0) ptx::mbarrier_arrive(empty);
}

}  // namespace megamoe
