#pragma once

#include <cuda_runtime_api.h>

namespace megamoe {

inline constexpr int kSideHeadBytes = 1 << 18;  ///< keys and values that one block reads
inline constexpr int kSideHeads = 264;
inline constexpr int kSideSize = 1024;  ///< rows, columns and depth of the side products

/// Bound by memory: each block reads its keys and values once, with a running softmax.
/// cache [kSideHeads][kSideHeadBytes], out [kSideHeads].
cudaError_t launch_side_attention(const void* cache, float* out, cudaStream_t stream);

/// Bound by the tensor core: out = a b, BF16 [kSideSize][kSideSize] in, FP32 out; half an SM's
/// shared memory per block.
cudaError_t launch_side_gemm(const void* a, const void* b, float* out, cudaStream_t stream);

}  // namespace megamoe
