#pragma once

#include "ptx/wgmma.cuh"
#include "roles/consumer_thread.cuh"

// Prefill main loop: 128 tokens on the instruction's M, 64 for each of two warpgroups; 256 weight
// rows on its N, as two halves of 128. FP32 accumulation in two levels, as in decode.
// Waits for: full[s] of the ring.
// Publishes: empty[s], one arrival per warp, when the second half's products are done. The
//   accumulators go to the epilogue, which runs in the consumer warps between two tiles.

namespace megamoe {

/// Accumulators of a consumer thread: [half of the weight rows][fragment of 64 tokens x 128 rows].
struct PrefillAccumulators {
  float d[2][64];
};

/// What one half's products are multiplied with when they are added up: token scale times weight
/// scale. Column groups of 8 weight rows take the even or the odd factor by their index: gate and
/// up rows alternate in L1; in L2 both are the half's one scale.
struct PrefillFactors {
  float low[2];   ///< row g: even, odd column groups
  float high[2];  ///< row g + 8

  MEGAMOE_DEVICE PrefillFactors(float act_low, float act_high, float even, float odd)
      : low{act_low * even, act_low * odd}, high{act_high * even, act_high * odd} {
    // computed here, not between the products that follow
    asm volatile("" : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1]));
  }
};

MEGAMOE_DEVICE void issue_prefill_half(std::uint64_t acts, std::uint64_t weights,
                                       float (&partial)[64]) {
  ptx::wgmma_pin(partial);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    ptx::wgmma_e4m3_ss<128>(partial, acts + 2 * k, weights + 2 * k, k > 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_pin(partial);
}

/// kFirst: the accumulator holds nothing yet.
template <bool kFirst>
MEGAMOE_DEVICE void promote_prefill_half(const float (&partial)[64], const PrefillFactors& factors,
                                         float (&d)[64]) {
#pragma unroll
  for (int j = 0; j < 64; ++j) {
    const float factor = (j & 2) == 0 ? factors.low[j >> 2 & 1] : factors.high[j >> 2 & 1];
    d[j] = fmaf(partial[j], factor, kFirst ? 0.0F : d[j]);
  }
}

/// Where a consumer thread finds the parts of a stage.
template <class RingType>
struct PrefillStages {
  const RingType& ring;
  std::uint32_t act_offset;    ///< of this warpgroup's rows
  std::uint32_t scale_offset;  ///< of row g's scale
  bool l2;

  MEGAMOE_DEVICE PrefillStages(const RingType& r, const ConsumerThread& thread, bool second_matrix)
      : ring(r),
        act_offset(static_cast<std::uint32_t>(thread.warpgroup) * 64 * kGranule),
        scale_offset(
            static_cast<std::uint32_t>(thread.warpgroup * 64 + thread.warp * 16 + thread.g()) * 4),
        l2(second_matrix) {}

  /// One block of K: both halves' products and their promotion. The stage is released once the
  /// tensor core has read it. True if `next` was full while the second half was under way.
  template <bool kFirst>
  MEGAMOE_DEVICE bool run(int stage, const RingPosition& next, PrefillAccumulators& acc) const {
    float partial[64];
    const float2 weight = load_shared_float2(ring.weight_scales(stage));
    const float act_low = load_shared_float(ring.act_scales(stage) + scale_offset);
    const float act_high = load_shared_float(ring.act_scales(stage) + scale_offset + 32);
    const std::uint64_t acts =
        ptx::k_major_descriptor(ptx::warp_uniform(ring.acts(stage) + act_offset));
    const std::uint64_t weights = ptx::k_major_descriptor(ptx::warp_uniform(ring.weights(stage)));
    const PrefillFactors first(act_low, act_high, weight.x, l2 ? weight.x : weight.y);
    const PrefillFactors second(act_low, act_high, l2 ? weight.y : weight.x, weight.y);
    issue_prefill_half(acts, weights, partial);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_pin(partial);
    promote_prefill_half<kFirst>(partial, first, acc.d[0]);

    // the second half's rows start 16 atoms of 1024 bytes on, in units of 16 bytes
    issue_prefill_half(acts, weights + 128 * kGranule / 16, partial);
    const bool full = ptx::mbarrier_test_wait_parity(ring.full(next.stage), next.parity);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_pin(partial);
    release_stage(ring.empty(stage));
    promote_prefill_half<kFirst>(partial, second, acc.d[1]);
    return full;
  }
};

/// All stages of a tile, of which the first is full. False when patience ran out.
template <class RingType>
MEGAMOE_DEVICE bool run_prefill_tile(const RingType& ring, const ConsumerThread& thread,
                                     const TileInfo& info, RingPosition& at,
                                     PrefillAccumulators& acc, ptx::Patience patience) {
  const PrefillStages<RingType> stages(ring, thread, (info.flags & kTileL2) != 0);
  RingPosition next = at;
  next.template advance<RingType::kStages>();
  bool full = stages.template run<true>(at.stage, next, acc);
  for (int k_block = 1; k_block < info.k_blocks; ++k_block) {
    at = next;
    if (!full && !wait_full(ring, at, patience)) return false;
    next.template advance<RingType::kStages>();
    full = stages.template run<false>(at.stage, next, acc);
  }
  at = next;
  return true;
}

/// The same for a warpgroup that has no rows in the tile: the tensor core is the other's alone.
template <class RingType>
MEGAMOE_DEVICE bool skip_prefill_tile(const RingType& ring, const TileInfo& info, RingPosition& at,
                                      ptx::Patience patience) {
  for (int k_block = 0; k_block < info.k_blocks; ++k_block) {
    if (!wait_full(ring, at, patience)) return false;
    release_stage(ring.empty(at.stage));
    at.template advance<RingType::kStages>();
  }
  return true;
}

/// Consumes tiles until the end. begun(const TileInfo&) runs when a tile's first stage is there;
/// epilogue(const TileInfo&, PrefillAccumulators&) after its last, and says whether to go on.
/// False when it does not, or when a stage did not come: in all warps the same one, if the loader
/// closed the ring. Patience is for a loader that does not even do that, so it must be longer than
/// all it may wait for between two stages.
template <class RingType, class Begun, class Epilogue>
MEGAMOE_DEVICE bool prefill_loop(const RingType& ring, const ConsumerThread& thread,
                                 ptx::Patience patience, Begun&& begun, Epilogue&& epilogue) {
  PrefillAccumulators acc;
  RingPosition at;
  while (true) {
    if (!wait_full(ring, at, patience)) return false;
    const TileInfo info = load_tile_info(ring.info(at.stage));
    if ((info.flags & kTileEnd) != 0) return true;
    begun(info);
    // The last block of an expert may leave the second warpgroup without rows.
    const bool has_rows = thread.warpgroup * 64 < info.rows;
    const bool done = has_rows ? run_prefill_tile(ring, thread, info, at, acc, patience)
                               : skip_prefill_tile(ring, info, at, patience);
    if (!done) return false;
    if (!epilogue(info, acc)) return false;
  }
}

}  // namespace megamoe
