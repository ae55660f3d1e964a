#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Random operands that the host can recompute anywhere: element i of an array is a function of the
// array's seed and i.

#if defined(__CUDACC__)
#define MEGAMOE_BENCH_BOTH __host__ __device__
#else
#define MEGAMOE_BENCH_BOTH
#endif

namespace megamoe::bench {

MEGAMOE_BENCH_BOTH inline std::uint32_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = index + seed * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDULL;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53ULL;
  x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}

/// A scale around `base`: base * [0.5, 1.5).
MEGAMOE_BENCH_BOTH inline float random_scale(std::uint64_t seed, std::uint64_t index, float base) {
  return base * (0.5F + static_cast<float>(random_word(seed, index) >> 8) * 0x1p-24F);
}

inline constexpr int kCodeTableSize = 1024;
/// Standard deviation of the codes' values.
inline constexpr float kCodeSigma = 112.0F;

/// e4m3 codes at the quantiles of a normal distribution: random codes are draws from it.
std::vector<std::uint8_t> normal_codes();

inline std::uint8_t random_code(const std::vector<std::uint8_t>& table, std::uint64_t seed,
                                std::uint64_t index) {
  return table[random_word(seed, index) % kCodeTableSize];
}

/// The same arrays in device memory.
void fill_codes(std::uint8_t* codes, std::size_t count, std::uint64_t seed);
void fill_scales(float* scales, std::size_t count, std::uint64_t seed, float base);

/// Values of e4m3 codes and of BF16 bits.
float e4m3_value(std::uint8_t code);
float bf16_to_float(std::uint16_t bits);
std::uint8_t e4m3_code(float value);

}  // namespace megamoe::bench
