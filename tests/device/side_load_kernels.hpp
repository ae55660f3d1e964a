#pragma once

#include <cuda_runtime_api.h>

namespace megamoe {

inline constexpr int kSideHeadBytes = 1 << 18;  ///< keys and values that one block reads
inline constexpr int kSideHeads = 264;
inline constexpr int kSideSize = 1024;  ///< rows, columns and depth of the side products

/// When the blocks of a kernel ran, by the GPU's nanosecond clock: ~0 and 0 before the first did.
struct SideTimes {
  unsigned long long begin;
  unsigned long long end;  ///< of the last that has ended
};
/// Sets `times` to what it is before the first block, in stream order.
cudaError_t launch_side_clear(SideTimes* times, cudaStream_t stream);
/// Writes the time to `*now`, in stream order.
cudaError_t launch_side_stamp(unsigned long long* now, cudaStream_t stream);

/// Bound by memory: each block reads its keys and values once, with a running softmax.
/// cache [kSideHeads][kSideHeadBytes], out [kSideHeads].
cudaError_t launch_side_attention(const void* cache, float* out, SideTimes* times,
                                  cudaStream_t stream);

/// Bound by the tensor core: out = a b, BF16 [kSideSize][kSideSize] in, FP32 out; half an SM's
/// shared memory per block.
cudaError_t launch_side_gemm(const void* a, const void* b, float* out, SideTimes* times,
                             cudaStream_t stream);

}  // namespace megamoe
