#pragma once

#include <cstdint>

#include "numerics/e4m3.hpp"
#include "numerics/hd.hpp"
#include "numerics/ue8m0.hpp"

// Quantisation of activations to e4m3: of x when a call is staged, of h between the two expert
// matrices. Staging, epilogues, CPU backend and reference all use these functions, because one
// different rounding flips codes. They need IEEE FP32 division and multiplication: nvcc's default,
// not --use_fast_math.
//
// What comes out for special values, per group of channels of one token:
//   all zero, or subnormal  the floor of m keeps 448 / m finite; the group comes out finite
//   NaN                     ignored by amax; its own element becomes the NaN code
//   Inf                     the scale becomes Inf (NaN in UE8M0) and the element the NaN code:
//                           every product with the group is NaN, in that token's row alone
//   any finite values       finite codes and a finite scale

namespace megamoe {

/// Channels that share one scale.
inline constexpr int kScaleGroup = 128;   ///< FP32 scales
inline constexpr int kMxScaleGroup = 32;  ///< UE8M0 scales

/// The least m of a group, so that zero and subnormal groups have a finite 448 / m.
inline constexpr float kMinAmax = 0x1p-100F;

/// max(amax, |value|) that ignores a NaN `value`.
MEGAMOE_HD constexpr float max_abs(float amax, float value) {
  const float magnitude = value < 0.0F ? -value : value;
  return magnitude > amax ? magnitude : amax;
}

/// What a group's amax decides: real = code * scale, code = e4m3 of real * multiplier.
struct GroupScale {
  float scale = 0.0F;
  float multiplier = 0.0F;
};

/// m = max(amax, 2^-100); scale = m / 448 and multiplier = 448 / m, both IEEE FP32 divisions.
/// `amax` is not NaN.
MEGAMOE_HD constexpr GroupScale group_scale(float amax) {
  const float m = amax > kMinAmax ? amax : kMinAmax;
  return {m / kE4m3Max, kE4m3Max / m};
}

/// As GroupScale, with scale = 2^(code - 127).
struct MxGroupScale {
  std::uint8_t scale = 0;
  float multiplier = 0.0F;
};

/// scale = 2^ceil(log2(m / 448)) with m = max(amax, 2^-100); the multiplier is its exact inverse.
MEGAMOE_HD constexpr MxGroupScale mx_group_scale(float amax) {
  const float m = amax > kMinAmax ? amax : kMinAmax;
  if (bit_cast<std::uint32_t>(m) >= 0x7f800000U) return {kUe8m0Nan, 0.0F};
  const int exponent = e4m3_scale_exponent(m);
  return {ue8m0_from_exponent(exponent), ue8m0_to_float(ue8m0_from_exponent(-exponent))};
}

/// The code of one element of a group.
MEGAMOE_HD constexpr std::uint8_t quantize(float value, float multiplier) {
  return float_to_e4m3(value * multiplier);
}

/// Quantises one group of `count` values and returns its scale.
MEGAMOE_HD constexpr float quantize_group(const float* values, int count, std::uint8_t* codes) {
  float amax = 0.0F;
  for (int i = 0; i < count; ++i) amax = max_abs(amax, values[i]);
  const GroupScale group = group_scale(amax);
  for (int i = 0; i < count; ++i) codes[i] = quantize(values[i], group.multiplier);
  return group.scale;
}

/// Quantises one group of `count` values and returns its UE8M0 scale.
MEGAMOE_HD constexpr std::uint8_t quantize_mx_group(const float* values, int count,
                                                    std::uint8_t* codes) {
  float amax = 0.0F;
  for (int i = 0; i < count; ++i) amax = max_abs(amax, values[i]);
  const MxGroupScale group = mx_group_scale(amax);
  for (int i = 0; i < count; ++i) codes[i] = quantize(values[i], group.multiplier);
  return group.scale;
}

/// Quantises a row of `channels` (a multiple of 128) values: codes [channels], scales
/// [channels / 128].
MEGAMOE_HD constexpr void quantize_row(const float* values, int channels, std::uint8_t* codes,
                                       float* scales) {
  for (int i = 0; i < channels; i += kScaleGroup)
    scales[i / kScaleGroup] = quantize_group(values + i, kScaleGroup, codes + i);
}

/// Quantises a row of `channels` (a multiple of 32) values: codes [channels], UE8M0 scales
/// [channels / 32].
MEGAMOE_HD constexpr void quantize_mx_row(const float* values, int channels, std::uint8_t* codes,
                                          std::uint8_t* scales) {
  for (int i = 0; i < channels; i += kMxScaleGroup)
    scales[i / kMxScaleGroup] = quantize_mx_group(values + i, kMxScaleGroup, codes + i);
}

}  // namespace megamoe
