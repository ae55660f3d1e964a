#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/quantize.hpp"

// Quantisation of weights, on the host: for checkpoints that hold BF16 or FP32, and for test data.

namespace megamoe {

namespace detail {
constexpr float load_weight(float value) { return value; }
constexpr float load_weight(std::uint16_t bf16) { return bf16_to_float(bf16); }
}  // namespace detail

/// Quantises a matrix [rows, cols] of FP32 or BF16 (std::uint16_t) values, both multiples of 128,
/// to e4m3 codes [rows, cols] with one FP32 scale per 128x128 block [rows / 128, cols / 128]. Scale
/// and rounding of a block are those of an activation group.
template <class Value>
constexpr void quantize_weights_fp8(const Value* values, int rows, int cols, std::uint8_t* codes,
                                    float* scales) {
  const std::size_t stride = static_cast<std::size_t>(cols);
  const auto quantize_block = [&](const Value* from, std::uint8_t* to) {
    float amax = 0.0F;
    for (int r = 0; r < kScaleGroup; ++r)
      for (int c = 0; c < kScaleGroup; ++c)
        amax = max_abs(amax, detail::load_weight(from[r * stride + c]));
    const GroupScale group = group_scale(amax);
    for (int r = 0; r < kScaleGroup; ++r)
      for (int c = 0; c < kScaleGroup; ++c)
        to[r * stride + c] = quantize(detail::load_weight(from[r * stride + c]), group.multiplier);
    return group.scale;
  };
  for (int r = 0; r < rows; r += kScaleGroup)
    for (int c = 0; c < cols; c += kScaleGroup)
      *scales++ = quantize_block(values + r * stride + c, codes + r * stride + c);
}

/// Quantises `count` (a multiple of 32) consecutive FP32 or BF16 values along K to packed e2m1
/// [count / 2], low nibble first, with UE8M0 scales [count / 32]: 2^ceil(log2(max(amax, 2^-100) /
/// 6)). The format cannot hold NaN or Inf: a group with an Inf gets the NaN scale, a NaN becomes
/// the largest value of its group.
template <class Value>
constexpr void quantize_weights_mxfp4(const Value* values, std::size_t count, std::uint8_t* packed,
                                      std::uint8_t* scales) {
  for (std::size_t i = 0; i < count; i += kMxScaleGroup) {
    float amax = kMinAmax;
    for (int j = 0; j < kMxScaleGroup; ++j)
      amax = max_abs(amax, detail::load_weight(values[i + j]));
    const bool finite = bit_cast<std::uint32_t>(amax) < 0x7f800000U;
    const int exponent = finite ? e2m1_scale_exponent(amax) : 0;
    scales[i / kMxScaleGroup] = finite ? ue8m0_from_exponent(exponent) : kUe8m0Nan;
    const float multiplier = ue8m0_to_float(ue8m0_from_exponent(-exponent));
    for (int j = 0; j < kMxScaleGroup; j += 2) {
      const auto low = float_to_e2m1(detail::load_weight(values[i + j]) * multiplier);
      const auto high = float_to_e2m1(detail::load_weight(values[i + j + 1]) * multiplier);
      packed[(i + j) / 2] = static_cast<std::uint8_t>(low | (high << 4));
    }
  }
}

}  // namespace megamoe
