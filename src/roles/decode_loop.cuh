#pragma once

#include "ptx/wgmma.cuh"
#include "roles/consumer_thread.cuh"

// clang-format off
// Decode main loop: weights on the instruction's M (256 rows in 64-row tiles over 4 or 2
// warpgroups), tokens on its N. FP32 accumulation in two levels: 128 along K inside the tensor
// core, then added with the weights' and the token's scale.
// Waits for: full[s] of the ring.
// Publishes: empty[s], one arrival per warp, once the stage's products are done. The
//   accumulators go to the epilogue, which runs in the consumer warps between two tiles.
// clang-format on

namespace megamoe {

/// Accumulators of a consumer thread: [64-row tile of the warpgroup][fragment].
template <class Shape>
struct DecodeAccumulators {
  static constexpr int kRowTiles = 4 / Shape::kWarpgroups;
  float d[kRowTiles][Shape::kTokens / 2];

  MEGAMOE_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kTokens / 2; ++j) d[i][j] = 0.0F;
    }
  }
};

/// One stage's products and their promotion, for one consumer thread. kTokens: the tile's tokens as
/// the instruction sees them, at most those of the shape.
template <class Shape, int kTokens>
struct DecodeStage {
  static constexpr int kRowTiles = DecodeAccumulators<Shape>::kRowTiles;
  static constexpr int kColumns = kTokens / 8;
  using Partial = float[kTokens / 2];

  std::uint32_t weights, acts;              ///< operands of this warpgroup, warp-uniform
  std::uint32_t act_scales, weight_scales;  ///< of this lane's columns; of the stage
  bool gate_up;      ///< L1: rows g take the first weight scale, rows g + 8 the second
  bool second_half;  ///< L2: all rows of this warpgroup take the second weight scale

  /// Starts unit u = (block of K) * kRowTiles + row tile.
  MEGAMOE_DEVICE void issue(int u, Partial& partial) const {
    const int block = u / kRowTiles, row_tile = u % kRowTiles;
    const std::uint64_t a = ptx::k_major_descriptor(weights + block * Shape::kWeightBlockBytes +
                                                    row_tile * 64 * kGranule);
    const std::uint64_t b = ptx::k_major_descriptor(acts + block * Shape::kActBlockBytes);
    ptx::wgmma_pin(partial);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ptx::wgmma_e4m3_ss<kTokens>(partial, a + 2 * k, b + 2 * k, k > 0);
    }
    ptx::wgmma_commit_group();
  }

  /// Adds unit u's products to the accumulators.
  MEGAMOE_DEVICE void promote(int u, Partial& partial, DecodeAccumulators<Shape>& acc) const {
    const int block = u / kRowTiles, row_tile = u % kRowTiles;
    ptx::wgmma_pin(partial);
    const float2 weight = load_shared_float2(weight_scales + block * 8);
    const float half = second_half ? weight.y : weight.x;
    const float low = gate_up ? weight.x : half, high = gate_up ? weight.y : half;
    float(&d)[Shape::kTokens / 2] = acc.d[row_tile];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float2 act = load_shared_float2(act_scales + block * Shape::kActScaleBytes + j * 32);
      d[4 * j + 0] = fmaf(partial[4 * j + 0], act.x * low, d[4 * j + 0]);
      d[4 * j + 1] = fmaf(partial[4 * j + 1], act.y * low, d[4 * j + 1]);
      d[4 * j + 2] = fmaf(partial[4 * j + 2], act.x * high, d[4 * j + 2]);
      d[4 * j + 3] = fmaf(partial[4 * j + 3], act.y * high, d[4 * j + 3]);
    }
  }

  /// All units of the stage, one in flight while the one before is promoted. On return nothing of
  /// the stage is needed any more.
  template <int kBlocks>
  MEGAMOE_DEVICE void run(DecodeAccumulators<Shape>& acc) const {
    constexpr int kUnits = kBlocks * kRowTiles;
    Partial partial[kUnits > 1 ? 2 : 1];
    issue(0, partial[0]);
#pragma unroll
    for (int u = 1; u < kUnits; ++u) {
      issue(u, partial[u & 1]);
      ptx::wgmma_wait_group<1>();
      promote(u - 1, partial[(u - 1) & 1], acc);
    }
    ptx::wgmma_wait_group<0>();
    promote(kUnits - 1, partial[(kUnits - 1) & 1], acc);
  }
};

/// What a decode tile's stages have in common, for one consumer thread.
template <class RingType>
struct DecodeTile {
  using Shape = typename RingType::Shape;
  static constexpr int kRowTiles = DecodeAccumulators<Shape>::kRowTiles;
  const RingType& ring;
  const ConsumerThread& thread;
  ptx::Patience patience;

  /// All stages of a tile, of which the first is full. False when patience ran out.
  template <int kTokens>
  MEGAMOE_DEVICE bool run(const TileInfo& info, RingPosition& at,
                          DecodeAccumulators<Shape>& acc) const {
    DecodeStage<Shape, kTokens> stage;
    stage.second_half = thread.warpgroup * kRowTiles >= 2;
    stage.gate_up = (info.flags & kTileL2) == 0;
    for (int k_block = 0; k_block < info.k_blocks; k_block += Shape::kBlocksPerStage) {
      if (k_block > 0 && !wait_full(ring, at, patience)) return false;
      stage.weights =
          ptx::warp_uniform(ring.weights(at.stage) + thread.warpgroup * kRowTiles * 64 * kGranule);
      stage.acts = ptx::warp_uniform(ring.acts(at.stage));
      stage.act_scales = ring.act_scales(at.stage) + thread.q() * 8;
      stage.weight_scales = ring.weight_scales(at.stage);
      if (Shape::kBlocksPerStage > 1 && k_block + 1 == info.k_blocks) {
        stage.template run<1>(acc);
      } else {
        stage.template run<Shape::kBlocksPerStage>(acc);
      }
      release_stage(ring.empty(at.stage));
      at.template advance<RingType::kStages>();
    }
    return true;
  }
};

/// Consumes tiles until the end. begun(const TileInfo&) runs when a tile's first stage is there;
/// epilogue(const TileInfo&, DecodeAccumulators<Shape>&) after its last, and says whether to go on.
/// False when it does not, or when a stage did not come: in all warps the same one, if the loader
/// closed the ring. Patience is for a loader that does not even do that, so it must be longer than
/// all it may wait for between two stages.
template <class RingType, class Begun, class Epilogue>
MEGAMOE_DEVICE bool decode_loop(const RingType& ring, const ConsumerThread& thread,
                                ptx::Patience patience, Begun&& begun, Epilogue&& epilogue) {
  using Shape = typename RingType::Shape;
  DecodeAccumulators<Shape> acc;
  const DecodeTile<RingType> tile{ring, thread, patience};
  RingPosition at;
  while (true) {
    if (!wait_full(ring, at, patience)) return false;
    const TileInfo info = load_tile_info(ring.info(at.stage));
    if ((info.flags & kTileEnd) != 0) return true;
    begun(info);
    acc.clear();
    // Wide tiles are bound by the tensor core: half of one that has few rows is left out.
    const bool narrow = Shape::kTokens >= 64 && ptx::warp_uniform(info.rows) <= Shape::kTokens / 2;
    const bool done =
        narrow ? tile.template run<(Shape::kTokens >= 64 ? Shape::kTokens / 2 : Shape::kTokens)>(
                     info, at, acc)
               : tile.template run<Shape::kTokens>(info, at, acc);
    if (!done) return false;
    if (!epilogue(info, acc)) return false;
  }
}

}  // namespace megamoe
