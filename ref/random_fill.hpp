#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace megamoe::ref {

/// Random bits as a function of a key and a counter (splitmix64's output function), so that any
/// part of the data can be made alone, in any order.
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  std::uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// A key for one thing out of many, such as one row of one tensor of one expert.
template <class... Part>
constexpr std::uint64_t random_key(std::uint64_t seed, Part... part) {
  std::uint64_t key = random_bits(seed, 0);
  ((key = random_bits(key, static_cast<std::uint64_t>(part))), ...);
  return key;
}

/// Uniform in [0, 1).
constexpr double random_uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1p-53;
}

/// Normal with mean 0 and deviation 1.
double random_normal(std::uint64_t key, std::uint64_t counter);

/// e4m3 codes of normal values with a deviation of kE4m3Deviation.
inline constexpr float kE4m3Deviation = 100.0F;
void fill_e4m3(std::uint64_t key, std::span<std::byte> codes);

/// Packed e2m1 codes of normal values with a deviation of kE2m1Deviation.
inline constexpr float kE2m1Deviation = 2.0F;
void fill_e2m1(std::uint64_t key, std::span<std::byte> packed);

/// BF16 normal values with the given deviation; the deviation is rounded to a power of two.
void fill_bf16(std::uint64_t key, float deviation, std::span<std::byte> values);

}  // namespace megamoe::ref
