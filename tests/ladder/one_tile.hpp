#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace megamoe::ladder {

inline constexpr int kTileColumns = 256;  ///< weight rows of a tile

/// One L1 tile: block_rows rows of activations times 256 weight rows.
struct OneTile {
  CUtensorMap weights;            ///< e4m3 [1, 256, K], box {128, 256, 1}
  CUtensorMap acts;               ///< e4m3 [block_rows, K], box {128, block_rows}
  const float* act_scales;        ///< [K / 128][block_rows]
  const float* weight_scales[2];  ///< [K / 128] each: of gate rows, of up rows
  int k_blocks;                   ///< K / 128
  int rows;                       ///< valid rows, 0 .. block_rows
  float* accumulators;    ///< [block_rows][256]: what the epilogue is given, valid rows only
  std::uint32_t* faults;  ///< threads whose waits ran out of patience
};

/// Runs loader and main loop of the kernel for blocks of `block_rows` rows on one CTA.
cudaError_t launch_one_tile(int block_rows, const OneTile& tile, cudaStream_t stream);

/// A kernel that does nothing but wait for the kernel before it, launched as the fused kernel is.
cudaError_t launch_empty(cudaStream_t stream);

}  // namespace megamoe::ladder
