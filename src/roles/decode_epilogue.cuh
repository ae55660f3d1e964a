#pragma once

#include "ptx/warp.cuh"
#include "roles/activation.cuh"
#include "roles/decode_loop.cuh"
#include "roles/prefill_epilogue.cuh"

// What the consumer warps do with a finished decode tile. A thread holds weight rows g and g + 8 of
// its warp's 16, for the tokens 8j + 2q and 8j + 2q + 1. In L1 row g is the gate and row g + 8 the
// up projection of the same channel, and a token's group of 128 channels spans all consumer warps.
// Waits for: the other consumer warps of the CTA (L1, a named barrier). The caller has waited for
//   the act slot (L1).
// Publishes: nothing; as in prefill_epilogue.cuh.

namespace megamoe {

/// The maximum over the warp's eight fragment rows of each of kCount values (a power of two),
/// spread over the lanes: a lane ends with the values first .. first + kLeft - 1 in front. Each
/// step swaps one half of the values for the other lane's half, as long as there are two.
template <int kCount>
struct SpreadMax {
  static constexpr int kLeft = kCount >= 8 ? kCount / 8 : 1;
  int first = 0;
  bool duplicate = false;  ///< another lane holds the same values

  MEGAMOE_DEVICE explicit SpreadMax(float (&values)[kCount], int lane) {
    int count = kCount;
#pragma unroll
    for (int mask = 4; mask <= 16; mask *= 2) {
      const bool upper = (lane & mask) != 0;
      if (count > 1) {
        count /= 2;
        if (upper) first += count;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
          if (i < count) {
            const float low = values[i], high = values[i + count];
            const float got = __shfl_xor_sync(0xFFFFFFFFU, upper ? low : high, mask);
            values[i] = fmaxf(upper ? high : low, got);
          }
        }
      } else {
        values[0] = fmaxf(values[0], __shfl_xor_sync(0xFFFFFFFFU, values[0], mask));
        duplicate = duplicate || upper;
      }
    }
  }
};

/// Largest magnitudes per token, shared by the consumer warps: three sets in turn. Set n % 3 is
/// used by the CTA's n-th L1 tile; a warp clears the set of tile n + 1 before the barrier of tile
/// n, which every warp passes after its reads in tile n - 2 and before its updates in tile n + 1.
/// Shared memory: 3 * kTokens words, of which set 0 is zero at the start.
template <class Shape>
struct SharedAmax {
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kValues = kTokens / 4;  ///< of one thread
  std::uint32_t* words;
  int set = 0;

  /// The token of value 2 * j + c of a lane.
  static MEGAMOE_DEVICE int token(int value, int q) {
    return 8 * (value >> 1) + 2 * q + (value & 1);
  }

  /// Folds this thread's magnitudes with all others' of the tile. Returns the set with the result.
  MEGAMOE_DEVICE const std::uint32_t* reduce(float (&amax)[kValues], const ConsumerThread& thread,
                                             int barrier_id) {
    std::uint32_t* const now = words + set * kTokens;
    set = set == 2 ? 0 : set + 1;
    const int index = (thread.warpgroup * 4 + thread.warp) * 32 + thread.lane();
    if (index < kTokens) words[set * kTokens + index] = 0;
    const SpreadMax<kValues> spread(amax, thread.lane());
    if (!spread.duplicate) {
#pragma unroll
      for (int i = 0; i < SpreadMax<kValues>::kLeft; ++i) {
        // magnitudes order like their bits
        atomicMax(&now[token(spread.first + i, thread.q())], __float_as_uint(amax[i]));
      }
    }
    ptx::named_barrier_sync(barrier_id, Shape::kConsumerThreads);
    return now;
  }
};

/// The scales of a tile's tokens, computed once per warp: lane l has those of tokens l and l + 32.
template <class Shape>
struct TokenScales {
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kPerLane = (kTokens + 31) / 32;
  GroupScale groups[kPerLane];

  MEGAMOE_DEVICE TokenScales(const std::uint32_t* amax, int lane) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      groups[i] = activated_group_scale(__uint_as_float(amax[(lane + 32 * i) % kTokens]));
    }
  }
  MEGAMOE_DEVICE float multiplier(int token) const {
    const float low = __shfl_sync(0xFFFFFFFFU, groups[0].multiplier, token);
    if constexpr (kPerLane == 1) return low;
    const float high = __shfl_sync(0xFFFFFFFFU, groups[kPerLane - 1].multiplier, token);
    return token < 32 ? low : high;
  }
  MEGAMOE_DEVICE void store(float* scales, int rows, int lane) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int token = lane + 32 * i;
      if (token < rows) scales[token] = groups[i].scale;
    }
  }
};

/// Stores one channel's codes for the tokens of column groups j and j + 1 (h[c] and h[2 + c]),
/// after turning 8 channels x 8 tokens within the warp: each lane stores 4 channels of one token.
MEGAMOE_DEVICE void store_act_pair(const float (&h)[4], const ConsumerThread& thread, int j,
                                   const TileInfo& info, const ActBlock& act, int channel) {
  const std::uint32_t turned =
      ptx::movmatrix_transpose(ptx::to_e4m3x2(h[0], h[2]) | (ptx::to_e4m3x2(h[1], h[3]) << 16));
  // low half: token 8j + g, high half: token 8(j + 1) + g; channels 2q, 2q + 1
  const std::uint32_t mine = __byte_perm(turned, 0, 0x3120);
  const bool odd = (thread.q() & 1) != 0;
  const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, odd ? mine & 0xFFFFU : mine >> 16, 1);
  const std::uint32_t codes = odd ? (mine & 0xFFFF0000U) | got : (mine & 0xFFFFU) | (got << 16);
  const int token = 8 * (j + (odd ? 1 : 0)) + thread.g();
  if (token < info.rows) {
    *reinterpret_cast<std::uint32_t*>(act.codes +
                                      static_cast<std::int64_t>(token) * act.intermediate +
                                      channel + (thread.q() & 2) * 2) = codes;
  }
}

/// The same for a block of 8 tokens: each lane stores 2 channels of one token.
MEGAMOE_DEVICE void store_act_single(float h0, float h1, const ConsumerThread& thread,
                                     const TileInfo& info, const ActBlock& act, int channel) {
  const std::uint32_t turned =
      ptx::movmatrix_transpose(ptx::to_e4m3x2(h0, 0.0F) | (ptx::to_e4m3x2(h1, 0.0F) << 16));
  const int token = thread.g();
  if (token < info.rows) {
    *reinterpret_cast<std::uint16_t*>(
        act.codes + static_cast<std::int64_t>(token) * act.intermediate + channel +
        thread.q() * 2) = static_cast<std::uint16_t>(__byte_perm(turned, 0, 0x4420));
  }
}

/// L1: activation, requantisation per token and 128 channels, stores to the act ring. The barrier
/// is the consumers' own.
template <class Shape, class Activation>
MEGAMOE_DEVICE void decode_l1_epilogue(DecodeAccumulators<Shape>& acc, const ConsumerThread& thread,
                                       const TileInfo& info, const ActBlock& act,
                                       const Activation& activation, SharedAmax<Shape>& shared,
                                       int barrier_id) {
  constexpr int kRowTiles = DecodeAccumulators<Shape>::kRowTiles, kColumns = Shape::kTokens / 8;
  static_assert(kColumns == 1 || kColumns % 2 == 0);
  float amax[2 * kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float& token_max = amax[2 * j + c];
      token_max = 0.0F;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const float h = activation(acc.d[i][4 * j + c], acc.d[i][4 * j + 2 + c]);
        acc.d[i][4 * j + c] = h;
        token_max = fmaxf(token_max, fabsf(h));
      }
    }
  }
  const TokenScales<Shape> scales(shared.reduce(amax, thread, barrier_id), thread.lane());
  if (thread.warpgroup == 0 && thread.warp == 0) {
    scales.store(act.scales + info.column * Shape::kTokens, info.rows, thread.lane());
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float multiplier = scales.multiplier(8 * j + 2 * thread.q() + c);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) acc.d[i][4 * j + c] *= multiplier;
    }
  }
  const int first_channel =
      info.column * kGranule + (thread.warpgroup * kRowTiles * 4 + thread.warp) * 8;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    const float(&d)[Shape::kTokens / 2] = acc.d[i];
    const int channel = first_channel + i * 32;
    if constexpr (kColumns == 1) {
      store_act_single(d[0], d[1], thread, info, act, channel);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) {
        const float h[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 4], d[4 * j + 5]};
        store_act_pair(h, thread, j, info, act, channel);
      }
    }
  }
}

/// L2: BF16 rows to where `row_pointer(token)` says (channel 0), or null. Each quad stores 16
/// channels of one token, a whole 32-byte sector. `hidden` may end in the middle of a tile.
template <class Shape, class RowPointer>
MEGAMOE_DEVICE void decode_l2_epilogue(const DecodeAccumulators<Shape>& acc,
                                       const ConsumerThread& thread, const TileInfo& info,
                                       int hidden, const RowPointer& row_pointer) {
  constexpr int kRowTiles = DecodeAccumulators<Shape>::kRowTiles;
  const bool odd = (thread.q() & 1) != 0;
  // channels of the sector that this lane stores: 0-3, 8-11, 4-7, 12-15 for q = 0..3
  const int in_sector = (odd ? 8 : 0) + (thread.q() & 2) * 2;
#pragma unroll
  for (int j = 0; j < Shape::kTokens / 8; ++j) {
    const int token = 8 * j + thread.g();
    std::byte* const to = token < info.rows ? row_pointer(token) : nullptr;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const float* d = &acc.d[i][4 * j];
      const std::uint32_t first = ptx::movmatrix_transpose(ptx::to_bf16x2(d[0], d[1]));
      const std::uint32_t second = ptx::movmatrix_transpose(ptx::to_bf16x2(d[2], d[3]));
      const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, odd ? first : second, 1);
      const uint2 piece = odd ? make_uint2(got, second) : make_uint2(first, got);
      const int channel =
          info.column * 256 + (thread.warpgroup * kRowTiles + i) * 64 + thread.warp * 16;
      if (to != nullptr && channel < hidden) {
        *reinterpret_cast<uint2*>(to + (channel + in_sector) * 2) = piece;
      }
    }
  }
}

}  // namespace megamoe
