#include <cmath>
#include <cstring>

#include <cuda_fp8.h>

#include "bench/roles/bench_cuda.hpp"
#include "bench/roles/random_data.hpp"

namespace megamoe::bench {
namespace {

__global__ void fill_codes_kernel(std::uint8_t* codes, std::size_t count, std::uint64_t seed,
                                  const std::uint8_t* table) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x * 4;
  for (std::size_t i = (blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x) * 4;
       i < count; i += step) {
    std::uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      word |= static_cast<std::uint32_t>(table[random_word(seed, i + b) % kCodeTableSize])
              << (8 * b);
    }
    *reinterpret_cast<std::uint32_t*>(codes + i) = word;
  }
}

template <class T, class Value>
__global__ void fill_kernel(T* to, std::size_t count, Value value) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    to[i] = value(i);
  }
}

struct ScaleAt {
  std::uint64_t seed;
  float base;
  __device__ float operator()(std::size_t i) const { return random_scale(seed, i, base); }
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

}  // namespace

std::vector<std::uint8_t> normal_codes() {
  std::vector<std::uint8_t> codes(kCodeTableSize);
  for (int i = 0; i < kCodeTableSize; ++i) {
    const double z = normal_quantile((i + 0.5) / kCodeTableSize);
    codes[static_cast<std::size_t>(i)] = e4m3_code(static_cast<float>(z) * kCodeSigma);
  }
  return codes;
}

void fill_codes(std::uint8_t* codes, std::size_t count, std::uint64_t seed) {
  const DeviceArray<std::uint8_t> table(normal_codes());
  fill_codes_kernel<<<1024, 256>>>(codes, count, seed, table.get());
  check(cudaDeviceSynchronize(), "fill_codes");
}

void fill_scales(float* scales, std::size_t count, std::uint64_t seed, float base) {
  fill_kernel<<<256, 256>>>(scales, count, ScaleAt{seed, base});
  check(cudaDeviceSynchronize(), "fill_scales");
}

float e4m3_value(std::uint8_t code) {
  __nv_fp8_e4m3 value;
  value.__x = code;
  return static_cast<float>(value);
}

std::uint8_t e4m3_code(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, 4);
  return value;
}

}  // namespace megamoe::bench
