#pragma once

#include "ptx/mbarrier.cuh"
#include "roles/tile_shape.hpp"

// clang-format off
// The ring of stages between one loader thread and the consumer warps of a CTA.
//   full[s]   waits for the loader's two arrivals (one with the bytes of the bulk copies, one when
//             its 4-byte copies are done); consumers wait for it with the parity of their round
//   empty[s]  waits for one arrival of every consumer warp; the loader waits for it with the
//             opposite parity, so that its first round passes
//   closed    its one phase completes when a loader has given up and none of its copies is under way:
//             full[] then stays as it is, and all consumer warps leave at the same stage
// clang-format on

namespace megamoe {

/// A stage and the parity of the round it is in.
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  template <int kStages>
  MEGAMOE_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Addresses of a ring in shared memory.
template <class ShapeType, int kStagesValue>
struct Ring {
  using Shape = ShapeType;
  using Layout = RingLayout<Shape, kStagesValue>;
  static constexpr int kStages = kStagesValue;

  std::uint32_t base;  ///< a multiple of 1024

  MEGAMOE_DEVICE std::uint32_t weights(int stage) const {
    return base + Layout::kWeights + stage * Shape::kWeightBytes;
  }
  MEGAMOE_DEVICE std::uint32_t acts(int stage) const {
    return base + Layout::kActs + stage * Shape::kActBytes;
  }
  MEGAMOE_DEVICE std::uint32_t act_scales(int stage) const {
    return base + Layout::kAux + stage * Shape::kAuxBytes;
  }
  MEGAMOE_DEVICE std::uint32_t weight_scales(int stage) const {
    return act_scales(stage) + Shape::kWeightScaleOffset;
  }
  MEGAMOE_DEVICE std::uint32_t info(int stage) const {
    return act_scales(stage) + Shape::kInfoOffset;
  }
  MEGAMOE_DEVICE std::uint32_t full(int stage) const {
    return base + Layout::kBarriers + stage * 8;
  }
  MEGAMOE_DEVICE std::uint32_t empty(int stage) const {
    return base + Layout::kBarriers + (kStages + stage) * 8;
  }
  MEGAMOE_DEVICE std::uint32_t closed() const { return base + Layout::kClosed; }

  /// By one thread, before a CTA-wide barrier.
  MEGAMOE_DEVICE void init() const {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(full(s), 2);
      ptx::mbarrier_init(empty(s), Shape::kConsumerThreads / 32);
    }
    ptx::mbarrier_init(closed(), 1);
    ptx::fence_mbarrier_init();
  }
};

/// A consumer's wait for the stage at `at`. False: it will not come, since the loader has given up;
/// or the loader has not even said so before patience ran out.
template <class RingType>
MEGAMOE_DEVICE bool wait_full(const RingType& ring, const RingPosition& at,
                              ptx::Patience patience) {
  const std::uint32_t full = ring.full(at.stage);
  if (ptx::mbarrier_try_wait_parity(full, at.parity)) return true;
  const std::uint64_t started = ptx::globaltimer();
  while (!ptx::mbarrier_try_wait_parity(full, at.parity)) {
    const bool expired = ptx::globaltimer() - started >= patience.ns;
    const bool closed = ptx::mbarrier_test_wait_parity(ring.closed(), 0);
    // The last look decides: nothing completes a stage of a closed ring. Votes, so that the warp
    // stays together and the compiler keeps what the main loop computes in uniform registers.
    if (__any_sync(0xFFFFFFFFU, expired || closed) != 0)
      return __all_sync(0xFFFFFFFFU, ptx::mbarrier_test_wait_parity(full, at.parity)) != 0;
  }
  return true;
}

MEGAMOE_DEVICE void store_tile_info(std::uint32_t address, const TileInfo& info) {
  const std::uint32_t first = info.flags | (static_cast<std::uint32_t>(info.k_blocks) << 16);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(first),
               "r"(info.block), "r"(info.column), "r"(info.rows)
               : "memory");
}

MEGAMOE_DEVICE TileInfo load_tile_info(std::uint32_t address) {
  TileInfo info;
  std::uint32_t first;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(first), "=r"(info.block), "=r"(info.column), "=r"(info.rows)
               : "r"(address)
               : "memory");
  // so that the compiler knows the tile's loop to be uniform, and its descriptors with it
  first = __reduce_or_sync(0xFFFFFFFFU, first);
  info.flags = static_cast<std::uint16_t>(first);
  info.k_blocks = static_cast<std::uint16_t>(first >> 16);
  return info;
}

MEGAMOE_DEVICE float load_shared_float(std::uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

MEGAMOE_DEVICE float2 load_shared_float2(std::uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(address)
               : "memory");
  return value;
}

}  // namespace megamoe
