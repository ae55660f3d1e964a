#pragma once

#include <cstddef>

#include "config/kernel_config.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Bytes of one activation row of `channels` channels.
constexpr std::size_t activation_row_bytes(Precision precision, int channels) {
  return static_cast<std::size_t>(channels) * (precision == Precision::bf16 ? 2 : 1);
}

/// Bytes of one activation row's scales: FP32 per 128 channels, or UE8M0 per 32; none for BF16.
constexpr std::size_t scale_row_bytes(Precision precision, int channels) {
  return precision == Precision::bf16 ? 0 : static_cast<std::size_t>(channels) / 32;
}

/// Channels that share one activation scale.
constexpr int scale_channels(Precision precision) {
  return precision == Precision::mxfp8_mxfp4 ? 32 : kGranule;
}

/// Bytes of one activation scale.
constexpr std::size_t scale_bytes(Precision precision) {
  return precision == Precision::mxfp8_mxfp4 ? 1 : 4;
}

}  // namespace megamoe
