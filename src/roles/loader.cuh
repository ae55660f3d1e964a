#pragma once

#include "ptx/copy.cuh"
#include "roles/ring.cuh"

// Loader: one thread brings the stages of a tile into the ring.
// Waits for: empty[s] of the ring. The caller has waited for the block's rows (rows_ready for L1,
//   l1_done for L2), whose writers' proxy fences it relies on.
// Publishes: full[s]; the first stage of a tile carries its TileInfo.

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
    return {.weights = ptx::evict_normal_policy(), .acts = ptx::evict_normal_policy()};
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

/// Brings all stages of a tile. A tile once started must be finished, or the consumers' own
/// deadline ends it: the only waits in here are for stages that they release. A loader that gives
/// up between the weights and the activations of a tile (the rows never came) loads whatever is
/// there, then ends. False when the deadline passed.
template <class RingType>
MEGAMOE_DEVICE bool load_tile(const RingType& ring, RingPosition& at, const TileSource& tile,
                              const TileInfo& info, LoadPolicies policies, ptx::Deadline deadline) {
  using Shape = typename RingType::Shape;
  for (int k_block = 0; k_block < info.k_blocks; k_block += Shape::kBlocksPerStage) {
    const int left = info.k_blocks - k_block;
    const int blocks = left < Shape::kBlocksPerStage ? left : Shape::kBlocksPerStage;
    if (!ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1, deadline)) return false;
    if (k_block == 0) store_tile_info(ring.info(at.stage), info);
    load_stage_weights(ring, at.stage, tile, k_block, blocks, policies);
    load_stage_acts(ring, at.stage, tile, k_block, blocks, policies);
    at.advance<RingType::kStages>();
  }
  return true;
}

/// Tells the consumers to leave. Called once, after the last tile.
template <class RingType>
MEGAMOE_DEVICE bool load_end(const RingType& ring, RingPosition& at, ptx::Deadline deadline) {
  if (!ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1, deadline)) return false;
  store_tile_info(ring.info(at.stage),
                  {.flags = kTileEnd, .k_blocks = 0, .block = 0, .column = 0, .rows = 0});
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
                               ptx::Deadline deadline) {
  bool landed = true;
  for (int stage = 0; stage < RingType::kStages; ++stage) {
    const std::uint32_t parity = stage < at.stage ? at.parity : at.parity ^ 1;
    landed = ptx::mbarrier_wait(ring.full(stage), parity, deadline) && landed;
  }
  return landed;
}

}  // namespace megamoe
