#pragma once

#include "ptx/copy.cuh"
#include "roles/ring.cuh"

// Loader: one thread brings the stages of a tile into the ring.
// Waits for: empty[s] of the ring, and through its caller for the tile's inputs (rows_ready for L1,
//   l1_done for L2), whose writers' proxy fences it relies on, and for the act slot (L1).
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
    const ptx::CachePolicy normal = ptx::evict_normal_policy();
    return {.weights = normal, .acts = normal};
  }
}

/// Where one tile's operands are.
struct TileSource {
  const CUtensorMap* weights;  ///< e4m3 [experts, rows, K], box {128, 256, 1}
  const std::byte* codes;      ///< of the tile's weight rows, which are contiguous
  int code_bytes;
  const CUtensorMap* acts;  ///< e4m3 [rows of the ring, K], box {128, kTokens}
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

/// Brings one tile's stages into the ring, in up to three steps: the weights of its first stages,
/// which may be under way before the activations exist; the activations of those stages; the rest.
/// One thread issues; all lanes of its warp may call.
template <class RingType>
class TileLoad {
  using Shape = typename RingType::Shape;
  static constexpr int kStep = Shape::kBlocksPerStage;

 public:
  MEGAMOE_DEVICE TileLoad(const RingType& ring, RingPosition& at, const TileSource& tile,
                          const TileInfo& info, LoadPolicies policies)
      : ring_(ring), at_(at), tile_(tile), info_(info), policies_(policies), first_(at) {}

  /// True if the next stage is free, without waiting.
  MEGAMOE_DEVICE bool next_is_free() const {
    return ptx::mbarrier_test_wait_parity(ring_.empty(at_.stage), at_.parity ^ 1);
  }
  /// Stages whose weights alone may be started.
  MEGAMOE_DEVICE bool may_run_ahead() const {
    return ahead_ < RingType::kStages && ahead_ * kStep < info_.k_blocks;
  }
  /// Starts the weights of the next stage, which is free.
  MEGAMOE_DEVICE void start_weights(bool issues) {
    if (issues) {
      if (ahead_ == 0) store_tile_info(ring_.info(at_.stage), info_);
      load_stage_weights(ring_, at_.stage, tile_, ahead_ * kStep, blocks_at(ahead_), policies_);
    }
    at_.template advance<RingType::kStages>();
    ++ahead_;
  }
  /// The activations of the stages with weights. Without them (the wait gave up) the stages get
  /// what the slot holds, and the first tells the consumers to leave.
  MEGAMOE_DEVICE void start_acts(bool issues, bool ready) {
    if (issues && !ready) store_tile_info(ring_.info(first_.stage), end_of_tiles());
    for (int stage = 0; stage < ahead_; ++stage) {
      if (issues) {
        load_stage_acts(ring_, first_.stage, tile_, stage * kStep, blocks_at(stage), policies_);
      }
      first_.advance<RingType::kStages>();
    }
  }
  /// Stages that are left after the first two steps.
  MEGAMOE_DEVICE int stages_left() const { return (info_.k_blocks + kStep - 1) / kStep - ahead_; }
  /// One stage whole. False when it did not become free.
  MEGAMOE_DEVICE bool start_stage(bool issues, ptx::Patience patience) {
    if (!ptx::mbarrier_wait(ring_.empty(at_.stage), at_.parity ^ 1, patience)) return false;
    if (issues) {
      if (ahead_ == 0) store_tile_info(ring_.info(at_.stage), info_);
      load_stage_weights(ring_, at_.stage, tile_, ahead_ * kStep, blocks_at(ahead_), policies_);
      load_stage_acts(ring_, at_.stage, tile_, ahead_ * kStep, blocks_at(ahead_), policies_);
    }
    at_.template advance<RingType::kStages>();
    ++ahead_;
    return true;
  }

 private:
  MEGAMOE_DEVICE int blocks_at(int stage) const {
    return min(kStep, info_.k_blocks - stage * kStep);
  }

  const RingType& ring_;
  RingPosition& at_;
  const TileSource& tile_;
  const TileInfo& info_;
  LoadPolicies policies_;
  RingPosition first_;
  int ahead_ = 0;  ///< stages started
};

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
/// so that none writes to shared memory that is no longer this CTA's; then closes the ring. `at` is
/// where loading stopped. When a copy does not land, the CTA may neither end nor wait for ever: the
/// kernel ends with an error.
template <class RingType>
MEGAMOE_DEVICE void load_drain(const RingType& ring, const RingPosition& at,
                               ptx::Patience patience) {
  for (int stage = 0; stage < RingType::kStages; ++stage) {
    const std::uint32_t parity = stage < at.stage ? at.parity : at.parity ^ 1;
    const std::uint32_t full = ring.full(stage);
    // Another look: this SM may have been another kernel's while patience ran out.
    if (!ptx::mbarrier_wait(full, parity, patience) &&
        !ptx::mbarrier_test_wait_parity(full, parity))
      ptx::trap();
  }
  ptx::mbarrier_arrive(ring.closed());
}

}  // namespace megamoe
