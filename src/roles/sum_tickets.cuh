#pragma once

#include "protocol/combine.hpp"
#include "protocol/route.hpp"
#include "protocol/tickets.hpp"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"
#include "roles/cta.cuh"
#include "roles/trace.cuh"

// Sum, ticket by ticket: any warp that has nothing else to do. A ticket is a piece of a token; when
// tokens are many, all but the last are whole tickets, so that few are claimed and yet all warps
// end together.
// Waits for: arrived of every rank.
// Publishes: y, to the next kernel of the stream.

namespace megamoe {

class Summer {
  using u32 = protocol::u32;
  static constexpr u32 kAll = 0xFFFFFFFFU;
  static constexpr u32 kWarpChannels = 32 * 8;  ///< 16 bytes per lane
  static constexpr u32 kFewTokens = 64, kManyTokens = 4096, kLastTokens = 1024;

 public:
  MEGAMOE_DEVICE Summer(const CtaState& state, DeviceCall& call) : state_(state), c_(call) {
    const u32 hidden = c_.g.hidden_granules * kGranule;
    whole_tokens_ = c_.num_tokens <= kManyTokens ? 0 : c_.num_tokens - kLastTokens;
    piece_channels_ = c_.num_tokens <= kFewTokens ? kWarpChannels : 2 * kWarpChannels;
    pieces_per_token_ = protocol::div_up(hidden, piece_channels_);
  }

  /// Works until no ticket is left. False in all lanes: aborted. A lane has kSlots contributions of
  /// kPieces pieces in flight, 4 registers each.
  template <int kSlots, int kPieces>
  MEGAMOE_DEVICE bool run(const Tracer& trace) {
    const u32 num_tickets = whole_tokens_ + (c_.num_tokens - whole_tokens_) * pieces_per_token_;
    if (num_tickets == 0) return true;
    trace.mark(TraceMark::sum_claimed);
    u32 ticket = claim_ticket();
    bool arrived = false;
    for (;;) {
      ticket = __shfl_sync(kAll, ticket, 0);
      if (ticket >= num_tickets) break;
      const u32 next = claim_ticket();
      if (!arrived && !wait_all()) return false;
      if (!arrived) trace.mark(TraceMark::arrived);
      arrived = true;
      u32 token = ticket, piece = 0, channels = c_.g.hidden_granules * kGranule;
      if (ticket >= whole_tokens_) {
        const u32 index = ticket - whole_tokens_;
        token = whole_tokens_ + index / pieces_per_token_;
        piece = index % pieces_per_token_;
        channels = piece_channels_;
      }
      sum<kSlots, kPieces>(token, piece * channels, channels);
      ticket = next;
    }
    trace.mark(TraceMark::summed);
    return true;
  }

 private:
  static MEGAMOE_DEVICE u32 lane() { return static_cast<u32>(ptx::lane_id()); }

  MEGAMOE_DEVICE u32 claim_ticket() {
    u32 ticket = 0;
    if (lane() == 0) ticket = protocol::claim(c_, &c_.m.words(c_.parity())->sum_ticket[0]);
    return ticket;  // of lane 0
  }

  MEGAMOE_DEVICE bool wait_all() {
    bool ok = true;
    for (u32 dst = lane(); ok && dst < c_.g.ranks; dst += 32)
      ok = protocol::wait_arrived(c_, 0, dst);
    return __all_sync(kAll, ok) != 0;
  }

  template <int kSlots, int kPieces>
  MEGAMOE_DEVICE void sum(u32 token, u32 first_channel, u32 channels) {
    const protocol::Geometry& g = c_.g;
    const u32 hidden = g.hidden_granules * kGranule;
    // Lane s knows slot s; slots without an expert have no contribution.
    float my_weight = 1.0F;
    bool my_used = lane() >= g.top_k && lane() < g.contributions;
    if (lane() < g.top_k) {
      const std::int64_t i = static_cast<std::int64_t>(token) * g.top_k + lane();
      my_weight = c_.m.topk_weights(g.rank)[i];
      my_used = protocol::is_expert(g, c_.m.topk_idx(g.rank)[i]);
    }
    const u32 used = __ballot_sync(kAll, my_used);
    const std::int64_t token_bytes = static_cast<std::int64_t>(token) * hidden * 2;
    const std::byte* const row = c_.m.peer(g.rank) + c_.m.symmetric().combine + token_bytes;
    std::byte* const y = reinterpret_cast<std::byte*>(state_.rank.y) + token_bytes;
    const std::int64_t slot_bytes = static_cast<std::int64_t>(g.capacity) * hidden * 2;
    const u32 end = protocol::lesser(first_channel + channels, hidden);
    const u32 offset = lane() * 8;
    for (u32 base = first_channel + offset; base - offset < end; base += kPieces * kWarpChannels) {
      float total[kPieces][8] = {};
      for (u32 slot = 0; slot < g.contributions; slot += kSlots) {
        uint4 loaded[kPieces][kSlots];
#pragma unroll
        for (u32 p = 0; p < kPieces; ++p) {
          const u32 channel = base + p * kWarpChannels;
#pragma unroll
          for (u32 i = 0; i < kSlots; ++i) {
            if (channel < end && (used >> (slot + i) & 1) != 0)
              loaded[p][i] = ptx::load_16(row + (slot + i) * slot_bytes + channel * 2);
          }
        }
#pragma unroll
        for (u32 i = 0; i < kSlots; ++i) {
          const float weight = __shfl_sync(kAll, my_weight, slot + i);
          if ((used >> (slot + i) & 1) != 0) {
#pragma unroll
            for (u32 p = 0; p < kPieces; ++p) add_piece(loaded[p][i], weight, total[p]);
          }
        }
      }
#pragma unroll
      for (u32 p = 0; p < kPieces; ++p) {
        const u32 channel = base + p * kWarpChannels;
        if (channel < end) ptx::store_16(y + channel * 2, rounded(total[p]));
      }
    }
  }

  static MEGAMOE_DEVICE uint4 rounded(const float (&t)[8]) {
    return {ptx::to_bf16x2(t[0], t[1]), ptx::to_bf16x2(t[2], t[3]), ptx::to_bf16x2(t[4], t[5]),
            ptx::to_bf16x2(t[6], t[7])};
  }
  /// Adds the products of two BF16 values with `weight`.
  static MEGAMOE_DEVICE void add_bf16x2(std::uint32_t pair, float weight, float& low, float& high) {
    low = fmaf(weight, __uint_as_float(pair << 16), low);
    high = fmaf(weight, __uint_as_float(pair & 0xFFFF0000U), high);
  }
  static MEGAMOE_DEVICE void add_piece(const uint4& piece, float weight, float (&total)[8]) {
    add_bf16x2(piece.x, weight, total[0], total[1]);
    add_bf16x2(piece.y, weight, total[2], total[3]);
    add_bf16x2(piece.z, weight, total[4], total[5]);
    add_bf16x2(piece.w, weight, total[6], total[7]);
  }

  const CtaState& state_;
  DeviceCall& c_;
  u32 whole_tokens_, piece_channels_, pieces_per_token_;
};

}  // namespace megamoe
