#pragma once

#include "ptx/warp.cuh"
#include "roles/activation.cuh"
#include "roles/prefill_loop.cuh"
#include "roles/quad.cuh"

// What the consumer warps do with a finished prefill tile. A thread holds rows g and g + 8 of its
// warp's 16; a whole quantisation group of a row lies in one quad, so nothing crosses warps.
// Waits for: nothing. The caller has waited for the act slot (L1).
// Publishes: nothing. L1's stores are generic and its readers are tensor copies, so the caller
//   fences the proxy before it releases l1_done; L2's stores go to the rows' source ranks, and the
//   caller has a publisher warp release them.

namespace megamoe {

/// One block of the act ring.
struct ActBlock {
  std::byte* codes;  ///< e4m3 [kTokens][intermediate]
  float* scales;     ///< [intermediate / 128][kTokens]
  int intermediate;
};

/// Applies the activation in place: the gates' registers become h. Returns the largest magnitude
/// in row g (x) and g + 8 (y), over the quad.
template <class Activation>
MEGAMOE_DEVICE float2 activate_prefill(PrefillAccumulators& acc, const Activation& activation) {
  float2 amax = {0.0F, 0.0F};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float(&d)[64] = acc.d[half];
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float h = activation(d[4 * j + c], d[4 * j + 4 + c]);
        d[4 * j + c] = h;
        float& row_max = c < 2 ? amax.x : amax.y;
        row_max = fmaxf(row_max, fabsf(h));
      }
    }
  }
  return {quad_max(amax.x), quad_max(amax.y)};
}

/// Quantises and stores one row's 128 channels; `second_row` selects g + 8. Each lane stores two
/// pieces of 16 bytes.
MEGAMOE_DEVICE void store_act_row(const PrefillAccumulators& acc, int second_row, float multiplier,
                                  std::byte* row, int q, bool valid) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&d)[64] = acc.d[half];
    std::uint32_t words[4];  // word m: channels 16m + 2q, + 1 and 16m + 8 + 2q, + 1
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const float* low = &d[16 * m + 2 * second_row];
      const float* high = low + 8;
      words[m] = ptx::to_e4m3x2(low[0] * multiplier, low[1] * multiplier) |
                 (ptx::to_e4m3x2(high[0] * multiplier, high[1] * multiplier) << 16);
    }
    quad_transpose(words, q);
    const uint4 piece = {
        __byte_perm(words[0], words[1], 0x5410), __byte_perm(words[2], words[3], 0x5410),
        __byte_perm(words[0], words[1], 0x7632), __byte_perm(words[2], words[3], 0x7632)};
    if (valid) *reinterpret_cast<uint4*>(row + half * 64 + q * 16) = piece;
  }
}

/// L1: activation, requantisation per row and 128 channels, stores to the act ring.
template <class Activation>
MEGAMOE_DEVICE void prefill_l1_epilogue(PrefillAccumulators& acc, const ConsumerThread& thread,
                                        const TileInfo& info, const ActBlock& act,
                                        const Activation& activation) {
  const float2 amax = activate_prefill(acc, activation);
  const int q = thread.q();
#pragma unroll
  for (int second_row = 0; second_row < 2; ++second_row) {
    const int row = thread.warpgroup * 64 + thread.warp * 16 + thread.g() + 8 * second_row;
    const GroupScale group = activated_group_scale(second_row == 0 ? amax.x : amax.y);
    const bool valid = row < info.rows;
    std::byte* to =
        act.codes + static_cast<std::int64_t>(row) * act.intermediate + info.column * kGranule;
    store_act_row(acc, second_row, group.multiplier, to, q, valid);
    if (valid && q == second_row)
      act.scales[info.column * PrefillShape::kTokens + row] = group.scale;
  }
}

/// L2: BF16 rows to where `row_pointer(row)` says row `row` of the block goes (its channel 0), or
/// null. `hidden` may end in the middle of a tile.
template <class RowPointer>
MEGAMOE_DEVICE void prefill_l2_epilogue(const PrefillAccumulators& acc,
                                        const ConsumerThread& thread, const TileInfo& info,
                                        int hidden, const RowPointer& row_pointer) {
  const int q = thread.q();
#pragma unroll
  for (int second_row = 0; second_row < 2; ++second_row) {
    const int row = thread.warpgroup * 64 + thread.warp * 16 + thread.g() + 8 * second_row;
    std::byte* const to = row < info.rows ? row_pointer(row) : nullptr;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int channel = info.column * 256 + half * 128;
      const bool valid = to != nullptr && channel < hidden;
      const float(&d)[64] = acc.d[half];
#pragma unroll
      for (int j = 0; j < 16; j += 4) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &d[4 * (j + i) + 2 * second_row];
          words[i] = ptx::to_bf16x2(pair[0], pair[1]);
        }
        quad_transpose(words, q);
        if (valid) {
          *reinterpret_cast<uint4*>(to + (channel + 8 * (j + q)) * 2) = {words[0], words[1],
                                                                         words[2], words[3]};
        }
      }
    }
  }
}

}  // namespace megamoe
