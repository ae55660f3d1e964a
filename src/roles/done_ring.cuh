#pragma once

#include "roles/consumer_thread.cuh"

// clang-format off
// The ring through which the consumer warps tell the publisher warp that a tile's results are
// stored.
//   full[s]   one arrival of every consumer warp, after its stores of the tile; the publisher waits
//   empty[s]  one arrival of the publisher, once it has read the tile's info; consumer warps wait
//             before they use the slot again
// clang-format on

namespace megamoe {

template <class ShapeType>
struct DoneRing {
  using Shape = ShapeType;
  static constexpr int kSlots = 4;
  static constexpr int kBytes = kSlots * 32;

  std::uint32_t base;  ///< 16-byte aligned

  /// A ring position in one register: how many tiles have passed.
  using Position = std::uint32_t;
  static constexpr Position kGaveUp = 0xFFFFFFFFU;
  static_assert((kSlots & (kSlots - 1)) == 0);
  static MEGAMOE_DEVICE int slot_of(Position at) { return static_cast<int>(at % kSlots); }
  static MEGAMOE_DEVICE std::uint32_t parity_of(Position at) { return at / kSlots & 1; }

  MEGAMOE_DEVICE std::uint32_t info(int slot) const { return base + slot * 16; }
  MEGAMOE_DEVICE std::uint32_t full(int slot) const { return base + kSlots * 16 + slot * 8; }
  MEGAMOE_DEVICE std::uint32_t empty(int slot) const { return full(slot) + kSlots * 8; }

  /// By one thread, before a CTA-wide barrier.
  MEGAMOE_DEVICE void init() const {
    for (int s = 0; s < kSlots; ++s) {
      ptx::mbarrier_init(full(s), Shape::kConsumerThreads / 32);
      ptx::mbarrier_init(empty(s), 1);
    }
    ptx::fence_mbarrier_init();
  }

  /// By all lanes of a consumer warp, after their stores. False in all lanes: patience ran out, and
  /// `at` is kGaveUp, with which nothing can be pushed.
  MEGAMOE_DEVICE bool push(Position& at, const TileInfo& tile, const ConsumerThread& thread,
                           ptx::Patience patience) const {
    const bool room = ptx::mbarrier_wait(empty(slot_of(at)), parity_of(at) ^ 1, patience);
    if (__all_sync(0xFFFFFFFFU, room) == 0) {
      at = kGaveUp;
      return false;
    }
    if (thread.lane() == 0) {
      if (thread.warpgroup == 0 && thread.warp == 0) store_tile_info(info(slot_of(at)), tile);
      ptx::mbarrier_arrive(full(slot_of(at)));
    }
    ++at;
    return true;
  }

  /// By all lanes of the publisher warp. False in all lanes: patience ran out.
  MEGAMOE_DEVICE bool pop(Position& at, TileInfo& tile, ptx::Patience patience) const {
    const bool there = ptx::mbarrier_wait(full(slot_of(at)), parity_of(at), patience);
    if (__all_sync(0xFFFFFFFFU, there) == 0) return false;
    tile = load_tile_info(info(slot_of(at)));
    __syncwarp();
    if (ptx::lane_id() == 0) ptx::mbarrier_arrive(empty(slot_of(at)));
    ++at;
    return true;
  }
};

}  // namespace megamoe
