#pragma once

#include "ptx/copy.cuh"
#include "roles/ring.cuh"

// Loader: one thread brings the stages of a tile into the ring.
// Waits for: empty[s] of the ring, and through its caller for the tile's inputs (rows_ready for L1,
//   l1_done for L2), whose writers' proxy fences it relies on, and for the act slot (L1).
// Publishes: full[s]; the first stage of a tile carries its TileInfo.

#ifndef MEGAMOE_AHEAD
#define MEGAMOE_AHEAD 99
#endif

namespace megamoe {

/// How the copies of one tile are cached: weights are read once per call in decode, and by every
/// block of the expert in prefill; activations are read by every tile column of their block.
struct LoadPolicies {
  ptx::CachePolicy weights;
  ptx::CachePolicy acts;
};

template <class Shape>
MEGAMOE_DEVICE LoadPolicies load_policies() {
  if constexpr (Shape::kFamily == Family::decode) {
    return {.weights = ptx::evict_first_policy(), .acts = ptx::evict_last_policy()};
  } else {
    const ptx::CachePolicy normal = ptx::evict_normal_policy();
    return {.weights = normal, .acts = normal};
  }
}

/// Where one tile's operands are.
struct TileSource {
  const CUtensorMap* weights;  ///< e4m3 [experts, rows, K], box {128, 256, 1}
  const CUtensorMap* acts;     ///< e4m3 [rows of the ring, K], box {128, kTokens}
  int expert;
  int weight_row;
  int act_row;
  const float* act_scales;  ///< [K/128][kTokens] of the block; 16-byte aligned
  const float*
      weight_scales[2];  ///< [K/128] each: of the gate and the up rows (L1), or of the first
                         ///< and the second 128 rows (L2; the second may repeat the first)
  int k_blocks;          ///< K / 128
};

/// Bytes that arrive by bulk copies in a stage that holds `blocks` blocks of K.
template <class Shape>
MEGAMOE_DEVICE std::uint32_t stage_tx_bytes(int blocks) {
  return static_cast<std::uint32_t>(
      blocks * (Shape::kWeightBlockBytes + Shape::kActBlockBytes + Shape::kActScaleBytes));
}

/// Starts the weights of one stage and makes its first arrival. They may be under way before the
/// activations exist.
template <class RingType>
MEGAMOE_DEVICE void load_stage_weights(const RingType& ring, int stage, const TileSource& tile,
                                       int k_block, int blocks, LoadPolicies policies) {
  using Shape = typename RingType::Shape;
  const std::uint32_t full = ring.full(stage);
  ptx::mbarrier_arrive_expect_tx(full, stage_tx_bytes<Shape>(blocks));
#pragma unroll
  for (int b = 0; b < Shape::kBlocksPerStage; ++b) {
    if (b < blocks) {
      ptx::tensor_load_3d(ring.weights(stage) + b * Shape::kWeightBlockBytes, tile.weights,
                          (k_block + b) * kGranule, tile.weight_row, tile.expert, full,
                          policies.weights);
    }
  }
#pragma unroll
  for (int b = 0; b < Shape::kBlocksPerStage; ++b) {
    if (b < blocks) {
      const std::uint32_t to = ring.weight_scales(stage) + b * 8;
      ptx::cp_async_4(to, tile.weight_scales[0] + k_block + b);
      ptx::cp_async_4(to + 4, tile.weight_scales[1] + k_block + b);
    }
  }
  ptx::cp_async_mbarrier_arrive_noinc(full);
}

/// Starts the activations of a stage whose weights were started.
template <class RingType>
MEGAMOE_DEVICE void load_stage_acts(const RingType& ring, int stage, const TileSource& tile,
                                    int k_block, int blocks, LoadPolicies policies) {
  using Shape = typename RingType::Shape;
  const std::uint32_t full = ring.full(stage);
#pragma unroll
  for (int b = 0; b < Shape::kBlocksPerStage; ++b) {
    if (b < blocks) {
      ptx::tensor_load_2d(ring.acts(stage) + b * Shape::kActBlockBytes, tile.acts,
                          (k_block + b) * kGranule, tile.act_row, full, policies.acts);
    }
  }
  ptx::bulk_load(ring.act_scales(stage), tile.act_scales + k_block * Shape::kTokens,
                 static_cast<std::uint32_t>(blocks) * Shape::kActScaleBytes, full, policies.acts);
}

/// Brings all stages of a tile. The weights of as many stages as are free start first; then
/// wait_inputs() waits for what the tile reads and for the room it writes to. When that gives up,
/// the stages under way are completed with whatever the slot holds, and the first of them tells the
/// consumers to leave. False when a wait gave up.
template <class RingType, class WaitInputs>
MEGAMOE_DEVICE bool load_tile(const RingType& ring, RingPosition& at, const TileSource& tile,
                              const TileInfo& info, LoadPolicies policies, ptx::Patience patience,
                              const WaitInputs& wait_inputs) {
  using Shape = typename RingType::Shape;
  constexpr int kStep = Shape::kBlocksPerStage;
  const int k_blocks = info.k_blocks;
  if (!ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1, patience)) return false;
  store_tile_info(ring.info(at.stage), info);
  RingPosition without_acts = at;
  int ahead = 0;  // stages with weights only
  do {
    load_stage_weights(ring, at.stage, tile, ahead * kStep, min(kStep, k_blocks - ahead * kStep),
                       policies);
    at.template advance<RingType::kStages>();
    ++ahead;
  } while (ahead * kStep < k_blocks && ahead < MEGAMOE_AHEAD && ahead < RingType::kStages &&
           ptx::mbarrier_test_wait_parity(ring.empty(at.stage), at.parity ^ 1));

  const bool ready = wait_inputs();
  if (!ready) store_tile_info(ring.info(without_acts.stage), end_of_tiles());
  for (int stage = 0; stage < ahead; ++stage) {
    load_stage_acts(ring, without_acts.stage, tile, stage * kStep,
                    min(kStep, k_blocks - stage * kStep), policies);
    without_acts.advance<RingType::kStages>();
  }
  if (!ready) return false;

  for (int k_block = ahead * kStep; k_block < k_blocks; k_block += kStep) {
    const int blocks = min(kStep, k_blocks - k_block);
    if (!ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1, patience)) return false;
    load_stage_weights(ring, at.stage, tile, k_block, blocks, policies);
    load_stage_acts(ring, at.stage, tile, k_block, blocks, policies);
    at.template advance<RingType::kStages>();
  }
  return true;
}

/// Tells the consumers to leave. Called once, after the last tile.
template <class RingType>
MEGAMOE_DEVICE bool load_end(const RingType& ring, RingPosition& at, ptx::Patience patience) {
  if (!ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1, patience)) return false;
  store_tile_info(ring.info(at.stage), end_of_tiles());
  ptx::mbarrier_arrive(ring.full(at.stage));
  ptx::mbarrier_arrive(ring.full(at.stage));
  at.advance<RingType::kStages>();
  return true;
}

/// After a failed wait, before the CTA may end: waits until every copy that was started has landed,
/// so that none writes to shared memory that is no longer this CTA's. `at` is where loading
/// stopped.
template <class RingType>
MEGAMOE_DEVICE bool load_drain(const RingType& ring, const RingPosition& at,
                               ptx::Patience patience) {
  bool landed = true;
  for (int stage = 0; stage < RingType::kStages; ++stage) {
    const std::uint32_t parity = stage < at.stage ? at.parity : at.parity ^ 1;
    landed = ptx::mbarrier_wait(ring.full(stage), parity, patience) && landed;
  }
  return landed;
}

}  // namespace megamoe
