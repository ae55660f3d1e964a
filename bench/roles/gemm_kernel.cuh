#pragma once

#include "bench/roles/gemm_role.hpp"
#include "roles/decode_epilogue.cuh"
#include "roles/loader.cuh"
#include "roles/prefill_epilogue.cuh"

// Composes the roles of one GEMM stage into a kernel whose neighbours are faked: tiles are dealt
// statically, every input is ready, and nothing is published. The last warpgroup loads.

namespace megamoe::bench {

/// Tile `index` of the launch: blocks of an expert vary fastest, so that prefill reuses the weights
/// in L2, then tile columns, then experts.
struct TilePlace {
  int expert, block, column;
};

MEGAMOE_DEVICE TilePlace tile_place(const GemmParams& p, int index) {
  const int per_expert = p.blocks_per_expert * p.columns();
  const int expert = index / per_expert, rest = index % per_expert;
  return {.expert = expert,
          .block = expert * p.blocks_per_expert + rest % p.blocks_per_expert,
          .column = rest / p.blocks_per_expert};
}

template <class RingType>
MEGAMOE_DEVICE bool load_all_tiles(const RingType& ring, const CUtensorMap* weights,
                                   const CUtensorMap* acts, const GemmParams& p,
                                   ptx::Patience patience) {
  using Shape = typename RingType::Shape;
  const LoadPolicies policies = load_policies<Shape>();
  const int k_blocks = p.k() / kGranule, scale_rows = p.weight_rows() / kGranule;
  const int tiles = p.blocks() * p.columns();
  RingPosition at;
  bool ok = true;
  for (int index = static_cast<int>(blockIdx.x); ok && index < tiles; index += gridDim.x) {
    const TilePlace place = tile_place(p, index);
    // L1: the gate's and the up projection's scales; L2: the tile's two groups of 128 rows
    const int first = p.second_matrix ? 2 * place.column : place.column;
    const int other = p.second_matrix ? min(first + 1, scale_rows - 1) : first + scale_rows / 2;
    const float* scales =
        p.weight_scales + static_cast<std::int64_t>(place.expert) * scale_rows * k_blocks;
    const TileSource tile = {
        .weights = weights,
        .acts = acts,
        .expert = place.expert,
        .weight_row = place.column * Shape::kWeightRows,
        .act_row = place.block * Shape::kTokens,
        .act_scales =
            p.act_scales + static_cast<std::int64_t>(place.block) * k_blocks * Shape::kTokens,
        .weight_scales = {scales + first * k_blocks, scales + other * k_blocks}};
    const TileInfo info = {.flags = p.second_matrix ? kTileL2 : std::uint16_t{0},
                           .k_blocks = static_cast<std::uint16_t>(k_blocks),
                           .block = place.block,
                           .column = place.column,
                           .rows = p.block_rows[place.block]};
    TileLoad<RingType> load(ring, at, tile, info, policies);
    while (ok && load.stages_left() > 0) ok = load.start_stage(true, patience);
    if (p.lost == Lost::loader) return true;
  }
  if (ok && load_end(ring, at, patience)) return true;
  load_drain(ring, at, {p.deadline_ns});
  return false;
}

/// The epilogue's view of the outputs.
template <class Shape>
struct Outputs {
  const GemmParams& p;

  MEGAMOE_DEVICE ActBlock act_block(int block) const {
    const std::int64_t row = static_cast<std::int64_t>(block) * Shape::kTokens;
    return {.codes = p.act_codes + row * p.intermediate,
            .scales = p.act_scales_out + row * (p.intermediate / kGranule),
            .intermediate = p.intermediate};
  }
  MEGAMOE_DEVICE auto row_pointer(int block) const {
    std::byte* const base =
        p.rows_out + static_cast<std::int64_t>(block) * Shape::kTokens * p.hidden * 2;
    const int row_bytes = p.hidden * 2;
    return [=](int row) { return base + static_cast<std::int64_t>(row) * row_bytes; };
  }
};

template <class RingType, bool kFast>
MEGAMOE_DEVICE bool consume_all_tiles(const RingType& ring, const GemmParams& p,
                                      std::uint32_t* amax_words, ptx::Patience patience) {
  using Shape = typename RingType::Shape;
  if (p.lost == Lost::consumers) return true;
  const ConsumerThread thread = consumer_thread(static_cast<int>(threadIdx.x));
  const Outputs<Shape> out{p};
  const Swiglu<kFast> activation{p.clamp};
  if constexpr (Shape::kFamily == Family::decode) {
    SharedAmax<Shape> amax{amax_words};
    return decode_loop(
        ring, thread, patience, [](const TileInfo&) {},
        [&](const TileInfo& info, DecodeAccumulators<Shape>& acc) {
          if ((info.flags & kTileL2) != 0) {
            decode_l2_epilogue<Shape>(acc, thread, info, p.hidden, out.row_pointer(info.block));
          } else {
            decode_l1_epilogue<Shape>(acc, thread, info, out.act_block(info.block), activation,
                                      amax, 1);
          }
          return true;
        });
  } else {
    return prefill_loop(
        ring, thread, patience, [](const TileInfo&) {},
        [&](const TileInfo& info, PrefillAccumulators& acc) {
          if ((info.flags & kTileL2) != 0) {
            prefill_l2_epilogue(acc, thread, info, p.hidden, out.row_pointer(info.block));
          } else {
            prefill_l1_epilogue(acc, thread, info, out.act_block(info.block), activation);
          }
          return true;
        });
  }
}

template <class Shape, int kStages, bool kFast>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm_role(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap acts,
              const GemmParams p) {
#if MEGAMOE_SM90A
  extern __shared__ __align__(1024) std::byte shared[];
  using RingType = Ring<Shape, kStages>;
  const RingType ring{ptx::shared_address(shared)};
  // decode only: behind the ring
  auto* const amax_words = reinterpret_cast<std::uint32_t*>(shared + RingType::Layout::kBytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == Shape::kConsumerThreads) ring.init();
  if (Shape::kFamily == Family::decode && thread < Shape::kTokens) amax_words[thread] = 0;
  __syncthreads();
  const std::uint64_t now = ptx::globaltimer();
  if (ptx::warp_uniform(threadIdx.x / 128) == Shape::kWarpgroups) {
    ptx::setmaxnreg_dec<Shape::kServiceRegisters>();
    if (thread == Shape::kConsumerThreads) {
      const long long first_cycle = clock64();
      if (!load_all_tiles(ring, &weights, &acts, p, {p.deadline_ns})) atomicAdd(p.faults, 1U);
      p.clocks[2 * blockIdx.x] = static_cast<std::uint64_t>(clock64() - first_cycle);
      p.clocks[2 * blockIdx.x + 1] = ptx::globaltimer() - now;
    }
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    if (!consume_all_tiles<RingType, kFast>(ring, p, amax_words, {2 * p.deadline_ns})) {
      atomicAdd(p.faults, 1U);
    }
  }
#endif
}

template <class Shape, bool kFast>
GemmInstance gemm_instance(const char* name) {
  constexpr int kAmaxBytes = Shape::kFamily == Family::decode ? 3 * 4 * Shape::kTokens : 0;
  constexpr int kStages = stages_in<Shape>(kSharedBytes - kAmaxBytes - 128);
  return {.name = name,
          .decode = Shape::kFamily == Family::decode,
          .tokens = Shape::kTokens,
          .stages = kStages,
          .fast_math = kFast,
          .shared_bytes = RingLayout<Shape, kStages>::kBytes + kAmaxBytes,
          .threads = Shape::kThreads,
          .kernel = reinterpret_cast<const void*>(gemm_role<Shape, kStages, kFast>)};
}

}  // namespace megamoe::bench
