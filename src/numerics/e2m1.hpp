#pragma once

#include <array>
#include <cstdint>

#include "numerics/e4m3.hpp"
#include "numerics/hd.hpp"

namespace megamoe {

/// The largest e2m1 value. The format has neither Inf nor NaN.
inline constexpr float kE2m1Max = 6.0F;

/// The value of an e2m1 code (low nibble; the high one is ignored): 0, 0.5, 1, 1.5, 2, 3, 4, 6.
MEGAMOE_HD constexpr float e2m1_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 8U) << 28;
  const std::uint32_t magnitude = code & 7U;
  if (magnitude >= 2U) return bit_cast<float>(sign | ((magnitude << 22) + (126U << 23)));
  return bit_cast<float>(sign | (magnitude != 0U ? 0x3f000000U : 0U));
}

/// The nearest e2m1 code, ties to even; saturates to +-6, Inf included. NaN becomes +6 or -6,
/// because the format has no NaN.
MEGAMOE_HD constexpr std::uint8_t float_to_e2m1(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 28) & 8U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude >= bit_cast<std::uint32_t>(kE2m1Max)) return static_cast<std::uint8_t>(sign | 7U);
  if (magnitude >= bit_cast<std::uint32_t>(1.0F)) {
    const std::uint32_t rounded = magnitude + 0x1fffffU + ((magnitude >> 22) & 1U);
    return static_cast<std::uint8_t>(sign | ((rounded >> 22) - (126U << 1)));
  }
  // Below 1 the values are 0, 0.5 and 1; next to 2^22 the spacing of FP32 is 0.5.
  const float rounded = bit_cast<float>(magnitude) + 0x1p22F;
  return static_cast<std::uint8_t>(
      sign | (bit_cast<std::uint32_t>(rounded) - bit_cast<std::uint32_t>(0x1p22F)));
}

/// The e4m3 code of an e2m1 code: every e2m1 value is exact in e4m3.
MEGAMOE_HD constexpr std::uint8_t e2m1_to_e4m3(std::uint8_t code) {
  return float_to_e4m3(e2m1_to_float(code));
}

/// All 16 values, for host loops that decode many codes.
inline constexpr std::array<float, 16> kE2m1Values = [] {
  std::array<float, 16> values{};
  for (unsigned code = 0; code < 16; ++code)
    values[code] = e2m1_to_float(static_cast<std::uint8_t>(code));
  return values;
}();

}  // namespace megamoe
