#pragma once

#include "ptx/device.cuh"

// Exchanges among the four lanes that hold one fragment row (a quad: lanes 4g .. 4g + 3).

namespace megamoe {

/// Lane q of each quad gets, in order, word q of lanes 0..3: turns four words of four lanes, each
/// 1/4 of a 16-byte piece, into one whole piece per lane.
MEGAMOE_DEVICE void quad_transpose(std::uint32_t (&words)[4], int q) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const bool odd = (q & 1) != 0, upper = (q & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(kAll, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? got : words[i];
    words[i + 1] = odd ? words[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(kAll, upper ? words[i] : words[i + 2], 2);
    words[i] = upper ? got : words[i];
    words[i + 2] = upper ? words[i + 2] : got;
  }
}

MEGAMOE_DEVICE float quad_max(float value) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  value = fmaxf(value, __shfl_xor_sync(kAll, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAll, value, 2));
}

}  // namespace megamoe
