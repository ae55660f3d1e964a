#include <cmath>

#include "kernels/fill.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e4m3.hpp"
#include "ptx/memory.cuh"

namespace megamoe {
namespace {

constexpr unsigned kCtas = 1024, kThreads = 256;
constexpr float kDeviation = 100.0F;
constexpr int kQuantiles = 256;

/// Values of equal probability under the standard normal distribution.
struct NormalTable {
  float value[kQuantiles];
};

/// The quantile of the standard normal distribution, by bisection.
double normal_quantile(double p) {
  double low = -6, high = 6;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

NormalTable normal_table() {
  NormalTable table;
  for (int i = 0; i < kQuantiles; ++i)
    table.value[i] = static_cast<float>(normal_quantile((i + 0.5) / kQuantiles));
  return table;
}

/// 64 random bits of a place (the output function of splitmix64).
__device__ std::uint64_t random_bits(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t z = seed * 0xd1342543de82ef95U + (place + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

__device__ std::size_t first_place() {
  return blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
}
__device__ std::size_t place_step() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

__global__ void fill_e4m3(std::uint64_t* words, std::size_t count, std::uint64_t seed,
                          const NormalTable table) {
  __shared__ std::uint8_t codes[kQuantiles];
  for (unsigned i = threadIdx.x; i < kQuantiles; i += blockDim.x)
    codes[i] = float_to_e4m3(table.value[i] * kDeviation);
  __syncthreads();
  for (std::size_t i = first_place(); i < count; i += place_step()) {
    const std::uint64_t bits = random_bits(seed, i);
    std::uint64_t word = 0;
    for (int b = 0; b < 64; b += 8)
      word |= static_cast<std::uint64_t>(codes[(bits >> b) & 0xFFU]) << b;
    words[i] = word;
  }
}

__global__ void fill_scales(float* scales, std::size_t count, float middle, std::uint64_t seed) {
  for (std::size_t i = first_place(); i < count; i += place_step()) {
    const float uniform = static_cast<float>(random_bits(seed, i) >> 40) * 0x1p-24F;
    scales[i] = middle * exp2f(2 * uniform - 1);
  }
}

__global__ void fill_bf16(std::uint16_t* values, std::size_t count, std::uint64_t seed,
                          const NormalTable table) {
  __shared__ std::uint16_t normal[kQuantiles];
  for (unsigned i = threadIdx.x; i < kQuantiles; i += blockDim.x)
    normal[i] = float_to_bf16(table.value[i]);
  __syncthreads();
  for (std::size_t i = first_place(); i < count; i += place_step())
    values[i] = normal[random_bits(seed, i) & 0xFFU];
}

/// No code of fill_e4m3 is a NaN, so no word is all ones.
constexpr std::uint32_t kNowhere = 0xFFFFFFFFU;

__global__ void read_through(const std::byte* memory, std::size_t pieces, std::uint32_t* sink) {
  std::uint32_t seen = 0;
  for (std::size_t i = first_place(); i < pieces; i += place_step()) {
    const uint4 piece = ptx::load_16(memory + i * 16);
    seen +=
        piece.x == kNowhere && piece.y == kNowhere && piece.z == kNowhere && piece.w == kNowhere;
  }
  if (seen != 0) atomicAdd(sink, seen);
}

}  // namespace

cudaError_t launch_fill_e4m3(std::byte* codes, std::size_t count, std::uint64_t seed,
                             cudaStream_t stream) {
  fill_e4m3<<<kCtas, kThreads, 0, stream>>>(reinterpret_cast<std::uint64_t*>(codes), count / 8,
                                            seed, normal_table());
  return cudaGetLastError();
}

cudaError_t launch_fill_scales(float* scales, std::size_t count, float middle, std::uint64_t seed,
                               cudaStream_t stream) {
  fill_scales<<<kCtas, kThreads, 0, stream>>>(scales, count, middle, seed);
  return cudaGetLastError();
}

cudaError_t launch_fill_bf16(std::uint16_t* values, std::size_t count, std::uint64_t seed,
                             cudaStream_t stream) {
  fill_bf16<<<kCtas, kThreads, 0, stream>>>(values, count, seed, normal_table());
  return cudaGetLastError();
}

cudaError_t launch_read_through(const std::byte* memory, std::size_t bytes, std::uint32_t* sink,
                                cudaStream_t stream) {
  read_through<<<kCtas, kThreads, 0, stream>>>(memory, bytes / 16, sink);
  return cudaGetLastError();
}

}  // namespace megamoe
