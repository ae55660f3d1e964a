#include <cuda_bf16.h>
#include <mma.h>

#include "tests/device/side_load_kernels.hpp"

namespace megamoe {
namespace {

__device__ unsigned long long global_time() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__device__ void note_begin(SideTimes* times) {
  if (threadIdx.x == 0) atomicMin(&times->begin, global_time());
}
/// After a barrier that all of the block's threads reach at its end.
__device__ void note_end(SideTimes* times) {
  if (threadIdx.x == 0) atomicMax(&times->end, global_time());
}

__global__ void side_clear(SideTimes* times) { *times = {~0ULL, 0}; }
__global__ void side_stamp(unsigned long long* now) { *now = global_time(); }

constexpr int kAttentionThreads = 256;

__global__ void __launch_bounds__(kAttentionThreads)
    side_attention(const float4* __restrict__ cache, float* __restrict__ out, SideTimes* times) {
  note_begin(times);
  const int pieces = kSideHeadBytes / 16;
  const float4* head = cache + static_cast<long long>(blockIdx.x) * pieces;
  float largest = -1e30F, sum = 0, value = 0;
  for (int i = static_cast<int>(threadIdx.x); i < pieces / 2; i += kAttentionThreads) {
    const float4 key = head[i], v = head[pieces / 2 + i];
    const float score = key.x + key.y + key.z + key.w;
    const float now = fmaxf(largest, score);
    const float keep = __expf(largest - now), weight = __expf(score - now);
    sum = sum * keep + weight;
    value = value * keep + weight * (v.x + v.y + v.z + v.w);
    largest = now;
  }
  __shared__ float parts[kAttentionThreads];
  parts[threadIdx.x] = value / sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (const float part : parts) total += part;
    out[blockIdx.x] = total;
  }
  note_end(times);
}

constexpr int kTile = 128, kDepth = 64, kGemmThreads = 256;
constexpr int kGemmShared = 100 * 1024;

/// 128 x 128 of the product: eight warps of 32 x 64.
__global__ void __launch_bounds__(kGemmThreads)
    side_gemm(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b,
              float* __restrict__ out, SideTimes* times) {
  using namespace nvcuda;
  note_begin(times);
  extern __shared__ __align__(128) unsigned char shared[];
  auto* tile_a = reinterpret_cast<__nv_bfloat16*>(shared);
  auto* tile_b = tile_a + kTile * kDepth;
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp / 2 * 32, column = warp % 2 * 64;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][4];
  for (auto& line : sums)
    for (auto& sum : line) wmma::fill_fragment(sum, 0.0F);
  for (int k = 0; k < kSideSize; k += kDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kGemmThreads) {
      tile_a[i] = a[(first_row + i / kDepth) * kSideSize + k + i % kDepth];
      tile_b[i] = b[(k + i / kTile) * kSideSize + first_column + i % kTile];
    }
    __syncthreads();
    for (int kk = 0; kk < kDepth; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left[2];
      for (int i = 0; i < 2; ++i)
        wmma::load_matrix_sync(left[i], tile_a + (row + 16 * i) * kDepth + kk, kDepth);
      for (int j = 0; j < 4; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right;
        wmma::load_matrix_sync(right, tile_b + kk * kTile + column + 16 * j, kTile);
        for (int i = 0; i < 2; ++i) wmma::mma_sync(sums[i][j], left[i], right, sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      wmma::store_matrix_sync(
          out + (first_row + row + 16 * i) * kSideSize + first_column + column + 16 * j, sums[i][j],
          kSideSize, wmma::mem_row_major);
  __syncthreads();
  note_end(times);
}

}  // namespace

cudaError_t launch_side_clear(SideTimes* times, cudaStream_t stream) {
  side_clear<<<1, 1, 0, stream>>>(times);
  return cudaGetLastError();
}

cudaError_t launch_side_stamp(unsigned long long* now, cudaStream_t stream) {
  side_stamp<<<1, 1, 0, stream>>>(now);
  return cudaGetLastError();
}

cudaError_t launch_side_attention(const void* cache, float* out, SideTimes* times,
                                  cudaStream_t stream) {
  side_attention<<<kSideHeads, kAttentionThreads, 0, stream>>>(static_cast<const float4*>(cache),
                                                               out, times);
  return cudaGetLastError();
}

cudaError_t launch_side_gemm(const void* a, const void* b, float* out, SideTimes* times,
                             cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(side_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kGemmShared);
  if (error != cudaSuccess) return error;
  side_gemm<<<dim3(kSideSize / kTile, kSideSize / kTile), kGemmThreads, kGemmShared, stream>>>(
      static_cast<const __nv_bfloat16*>(a), static_cast<const __nv_bfloat16*>(b), out, times);
  return cudaGetLastError();
}

}  // namespace megamoe
