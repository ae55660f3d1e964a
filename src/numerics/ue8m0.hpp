#pragma once

#include <cstdint>

#include "numerics/hd.hpp"

namespace megamoe {

inline constexpr std::uint8_t kUe8m0Nan = 255;

/// The value of a UE8M0 scale: 2^(code - 127), from 2^-127 to 2^127; 255 is NaN.
MEGAMOE_HD constexpr float ue8m0_to_float(std::uint8_t code) {
  if (code == kUe8m0Nan) return bit_cast<float>(0x7fc00000U);
  if (code == 0) return 0x1p-127F;  // subnormal in FP32
  return bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

/// The UE8M0 code of 2^exponent; exponent in -127..127.
MEGAMOE_HD constexpr std::uint8_t ue8m0_from_exponent(int exponent) {
  return static_cast<std::uint8_t>(exponent + 127);
}

namespace detail {

/// ceil(log2(m / (significand * 2^shift))), exactly, for a normal m > 0. `significand` is in (1, 2)
/// and given by its 23 FP32 fraction bits.
MEGAMOE_HD constexpr int ceil_log2_ratio(float m, std::uint32_t fraction, int shift) {
  const auto bits = bit_cast<std::uint32_t>(m);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  // m / bound = (s_m / s_bound) * 2^(exponent - shift) with the ratio of significands in (1/2, 2):
  // at most 1 when s_m <= s_bound, above 1 otherwise.
  return exponent - shift + ((bits & 0x7fffffU) > fraction ? 1 : 0);
}

}  // namespace detail

/// ceil(log2(m / 448)) for a normal, finite m > 0: the exponent of the smallest power of two that
/// scales m into e4m3.
MEGAMOE_HD constexpr int e4m3_scale_exponent(float m) {
  return detail::ceil_log2_ratio(m, 0x600000U, 8);  // 448 = 1.75 * 2^8
}

/// ceil(log2(m / 6)) for a normal, finite m > 0: the same for e2m1.
MEGAMOE_HD constexpr int e2m1_scale_exponent(float m) {
  return detail::ceil_log2_ratio(m, 0x400000U, 2);  // 6 = 1.5 * 2^2
}

}  // namespace megamoe
