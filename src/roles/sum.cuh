#pragma once

#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

// Sum: adds a token's contributions into its row of y.
// Waits for: nothing. The caller has acquired `arrived` of every rank that wrote contributions.
// Publishes: y, to the next kernel of the stream.

namespace megamoe {

/// The contributions to one rank's tokens.
struct SumSource {
  const std::byte* combine;  ///< BF16 [slots][tokens][hidden]; routed slots, then shared experts
  std::int64_t slot_bytes;   ///< from one slot's rows to the next slot's
  int hidden;
  int top_k;
  int shared;  ///< slots after the routed ones, with weight 1
};

/// Adds the products of two BF16 values with `weight`.
MEGAMOE_DEVICE void add_bf16x2(std::uint32_t pair, float weight, float& low, float& high) {
  low = fmaf(weight, __uint_as_float(pair << 16), low);
  high = fmaf(weight, __uint_as_float(pair & 0xFFFF0000U), high);
}

/// One token's slots that count: a slot whose expert id is negative has no contribution.
template <int kMaxSlots>
struct TokenSlots {
  float weight[kMaxSlots];
  std::uint32_t used = 0;

  template <class Index>
  MEGAMOE_DEVICE TokenSlots(const SumSource& source, const Index* topk_idx,
                            const float* topk_weights) {
#pragma unroll
    for (int s = 0; s < kMaxSlots; ++s) {
      weight[s] = 1.0F;
      const bool routed = s < source.top_k;
      if (routed) weight[s] = topk_weights[s];
      if (routed ? topk_idx[s] >= 0 : s < source.top_k + source.shared) used |= 1U << s;
    }
  }
};

/// One piece of 8 channels: y = sum of weight * contribution in slot order, each step a fused
/// multiply-add in FP32, rounded once to BF16.
template <int kMaxSlots>
MEGAMOE_DEVICE uint4 sum_piece(const uint4 (&loaded)[kMaxSlots],
                               const TokenSlots<kMaxSlots>& slots) {
  float sum[8] = {};
#pragma unroll
  for (int s = 0; s < kMaxSlots; ++s) {
    if ((slots.used >> s & 1) != 0) {
      add_bf16x2(loaded[s].x, slots.weight[s], sum[0], sum[1]);
      add_bf16x2(loaded[s].y, slots.weight[s], sum[2], sum[3]);
      add_bf16x2(loaded[s].z, slots.weight[s], sum[4], sum[5]);
      add_bf16x2(loaded[s].w, slots.weight[s], sum[6], sum[7]);
    }
  }
  return {ptx::to_bf16x2(sum[0], sum[1]), ptx::to_bf16x2(sum[2], sum[3]),
          ptx::to_bf16x2(sum[4], sum[5]), ptx::to_bf16x2(sum[6], sum[7])};
}

/// Sums pieces of one token: first, first + step, ... below hidden / 8. All slots of kAtOnce pieces
/// are loaded before the first is added: what a thread has in flight, and its registers (4 per slot
/// and piece). top_k + shared <= kMaxSlots.
template <int kMaxSlots, int kAtOnce>
MEGAMOE_DEVICE void sum_pieces(const SumSource& source, const TokenSlots<kMaxSlots>& slots,
                               int token, std::byte* y_row, int first, int step) {
  const std::byte* const row =
      source.combine + static_cast<std::int64_t>(token) * source.hidden * 2;
  const int pieces = source.hidden / 8;
  for (int base = first; base < pieces; base += step * kAtOnce) {
    uint4 loaded[kAtOnce][kMaxSlots];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = base + i * step;
#pragma unroll
      for (int s = 0; s < kMaxSlots; ++s) {
        if ((slots.used >> s & 1) != 0 && piece < pieces) {
          loaded[i][s] = ptx::load_16(row + s * source.slot_bytes + piece * 16);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = base + i * step;
      if (piece < pieces) ptx::store_16(y_row + piece * 16, sum_piece(loaded[i], slots));
    }
  }
}

}  // namespace megamoe
