#pragma once

#include <cstdint>

#include "numerics/hd.hpp"

namespace megamoe {

/// The value of a BF16: 1 sign, 8 exponent and 7 mantissa bits, the upper half of an FP32.
MEGAMOE_HD constexpr float bf16_to_float(std::uint16_t bits) {
  return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The nearest BF16, ties to even; values past the largest finite one become Inf, NaN stays NaN.
MEGAMOE_HD constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    // The quiet bit keeps a NaN whose payload lies in the dropped half from becoming Inf.
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace megamoe
