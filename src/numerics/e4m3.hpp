#pragma once

#include <array>
#include <cstdint>

#include "numerics/hd.hpp"

namespace megamoe {

/// The largest finite e4m3 value. The format has no Inf; 0x7f and 0xff are NaN.
inline constexpr float kE4m3Max = 448.0F;

/// The value of an e4m3 code: 1 sign, 4 exponent (bias 7) and 3 mantissa bits.
MEGAMOE_HD constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return bit_cast<float>(sign | 0x7fc00000U);
  if (magnitude >= 8U) return bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
  // Subnormal: multiples of 2^-9. The product keeps the sign of zero.
  const float unsigned_value = static_cast<float>(magnitude) * 0x1p-9F;
  return sign != 0 ? -unsigned_value : unsigned_value;
}

/// The nearest e4m3 code, ties to even; saturates to +-448, Inf included. Any NaN becomes 0x7f: the
/// sign of a computed NaN differs between processors, and codes should not.
MEGAMOE_HD constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return 0x7fU;
  if (magnitude >= bit_cast<std::uint32_t>(kE4m3Max)) {
    return static_cast<std::uint8_t>(sign | 0x7eU);
  }
  if (magnitude >= bit_cast<std::uint32_t>(0x1p-6F)) {
    const std::uint32_t rounded = magnitude + 0x7ffffU + ((magnitude >> 20) & 1U);
    return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120U << 3)));
  }
  // Subnormal: next to 2^14 the spacing of FP32 is 2^-9, so the addition itself rounds.
  const float rounded = bit_cast<float>(magnitude) + 0x1p14F;
  return static_cast<std::uint8_t>(
      sign | (bit_cast<std::uint32_t>(rounded) - bit_cast<std::uint32_t>(0x1p14F)));
}

/// All 256 values, for host loops that decode many codes.
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code)
    values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
  return values;
}();

}  // namespace megamoe
