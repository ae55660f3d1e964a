#pragma once

#include "ptx/mbarrier.cuh"
#include "roles/tile_shape.hpp"

// clang-format off
// The ring of stages between one loader thread and the consumer warps of a CTA.
//   full[s]   waits for the loader's two arrivals (one with the bytes of the bulk copies, one when
//             its 4-byte copies are done); consumers wait for it with the parity of their round
//   empty[s]  waits for one arrival of every consumer warp; the loader waits for it with the
//             opposite parity, so that its first round passes
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

  /// By one thread, before a CTA-wide barrier.
  MEGAMOE_DEVICE void init() const {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(full(s), 2);
      ptx::mbarrier_init(empty(s), Shape::kConsumerThreads / 32);
    }
    ptx::fence_mbarrier_init();
  }
};

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
