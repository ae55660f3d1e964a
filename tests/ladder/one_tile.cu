#include "ptx/warp.cuh"
#include "roles/decode_loop.cuh"
#include "roles/loader.cuh"
#include "roles/prefill_loop.cuh"
#include "tests/ladder/one_tile.hpp"

// Loader and main loop with faked neighbours: one tile, whose accumulators are stored as they are.

namespace megamoe::ladder {
namespace {

constexpr std::uint64_t kPatienceNs = 1'000'000'000;

template <class Shape>
__device__ void store_accumulators(const DecodeAccumulators<Shape>& acc, const ConsumerThread& t,
                                   const OneTile& tile) {
  constexpr int kRowTiles = DecodeAccumulators<Shape>::kRowTiles;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kTokens / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = (t.warpgroup * kRowTiles + i) * 64 + t.warp * 16 + t.g() + c / 2 * 8;
        const int row = 8 * j + 2 * t.q() + c % 2;
        if (row < tile.rows) tile.accumulators[row * kTileColumns + column] = acc.d[i][4 * j + c];
      }
    }
  }
}

__device__ void store_accumulators(const PrefillAccumulators& acc, const ConsumerThread& t,
                                   const OneTile& tile) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = t.warpgroup * 64 + t.warp * 16 + t.g() + c / 2 * 8;
        const int column = half * 128 + 8 * j + 2 * t.q() + c % 2;
        if (row < tile.rows)
          tile.accumulators[row * kTileColumns + column] = acc.d[half][4 * j + c];
      }
    }
  }
}

template <class RingType>
__device__ bool load_one(const RingType& ring, const OneTile& p, const CUtensorMap* weights,
                         const CUtensorMap* acts) {
  using Shape = typename RingType::Shape;
  const TileSource source = {.weights = weights,
                             .acts = acts,
                             .expert = 0,
                             .weight_row = 0,
                             .act_row = 0,
                             .act_scales = p.act_scales,
                             .weight_scales = {p.weight_scales[0], p.weight_scales[1]}};
  const TileInfo info = {.flags = 0,
                         .k_blocks = static_cast<std::uint16_t>(p.k_blocks),
                         .block = 0,
                         .column = 0,
                         .rows = p.rows};
  const ptx::Patience patience{kPatienceNs};
  RingPosition at;
  TileLoad<RingType> load(ring, at, source, info, load_policies<Shape>());
  bool ok = true;
  while (ok && load.stages_left() > 0) ok = load.start_stage(true, patience);
  if (ok && load_end(ring, at, patience)) return true;
  load_drain(ring, at, patience);
  return false;
}

template <class RingType>
__device__ bool consume_one(const RingType& ring, const OneTile& p) {
  using Shape = typename RingType::Shape;
  const ConsumerThread thread = consumer_thread(static_cast<int>(threadIdx.x));
  const ptx::Patience patience{2 * kPatienceNs};
  const auto store = [&](const TileInfo&, const auto& acc) {
    store_accumulators(acc, thread, p);
    return true;
  };
  if constexpr (Shape::kFamily == Family::decode) {
    return decode_loop(
        ring, thread, patience, [](const TileInfo&) {}, store);
  } else {
    return prefill_loop(
        ring, thread, patience, [](const TileInfo&) {}, store);
  }
}

template <class Shape, int kStages>
__global__ void __launch_bounds__(Shape::kThreads, 1) one_tile(const __grid_constant__ OneTile p) {
#if MEGAMOE_SM90A
  extern __shared__ __align__(1024) std::byte shared[];
  const Ring<Shape, kStages> ring{ptx::shared_address(shared)};
  if (threadIdx.x == Shape::kConsumerThreads) ring.init();
  __syncthreads();
  bool ok = true;
  if (ptx::warp_uniform(threadIdx.x / 128) == Shape::kWarpgroups) {
    ptx::setmaxnreg_dec<Shape::kServiceRegisters>();
    if (threadIdx.x == Shape::kConsumerThreads) ok = load_one(ring, p, &p.weights, &p.acts);
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    ok = consume_one(ring, p);
  }
  if (!ok) atomicAdd(p.faults, 1U);
#endif
}

template <class Shape>
cudaError_t launch(const OneTile& tile, cudaStream_t stream) {
  constexpr int kStages = stages_in<Shape>(kSharedBytes);
  constexpr int kBytes = RingLayout<Shape, kStages>::kBytes;
  const cudaError_t error = cudaFuncSetAttribute(
      one_tile<Shape, kStages>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  one_tile<Shape, kStages><<<1, Shape::kThreads, kBytes, stream>>>(tile);
  return cudaGetLastError();
}

__global__ void empty() { ptx::griddepcontrol_wait(); }

}  // namespace

cudaError_t launch_one_tile(int block_rows, const OneTile& tile, cudaStream_t stream) {
  switch (block_rows) {
    case 8:
      return launch<DecodeShape<8, 2>>(tile, stream);
    case 16:
      return launch<DecodeShape<16, 2>>(tile, stream);
    case 32:
      return launch<DecodeShape<32, 2>>(tile, stream);
    case 64:
      return launch<DecodeShape<64, 2>>(tile, stream);
    case 128:
      return launch<PrefillShape>(tile, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_empty(cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(132);
  config.blockDim = dim3(384);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, empty);
}

}  // namespace megamoe::ladder
