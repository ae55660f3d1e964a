#pragma once

#include "protocol/route.hpp"
#include "protocol/tickets.hpp"
#include "roles/cta.cuh"

// Route: all threads of a CTA, before its roles part. Tells every rank which of this rank's tokens
// are for whom, chunk by chunk; see protocol/route.hpp for the words.
// Waits for: the other chunks' counts (only when there is more than one).
// Publishes: counts, entries, expected.

namespace megamoe {

/// Counters in shared memory while a chunk is routed. A cell is a (destination rank, local expert)
/// pair, a segment the part of the chunk's tokens that one warp goes through in order.
struct RouteTables {
  protocol::u32* segments;  ///< [num_segments][cells]
  protocol::u32* cells;     ///< [cells]
  protocol::u32 num_cells;
  protocol::u32 num_segments;
};

/// Shared memory that RouteTables need at least.
constexpr std::size_t route_bytes(std::size_t num_cells) { return num_cells * 2 * 4; }

template <int kThreads>
class Router {
  using u32 = protocol::u32;
  static constexpr u32 kWarps = kThreads / 32;
  static constexpr u32 kAll = 0xFFFFFFFFU;

 public:
  /// `scratch`: shared memory that nothing else uses until the CTA's roles part.
  MEGAMOE_DEVICE Router(CtaState& state, DeviceCall& call, u32* scratch, u32 scratch_bytes)
      : state_(state),
        c_(call),
        thread_(threadIdx.x),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    t_.num_cells = c_.g.ranks * c_.g.local_experts;
    const u32 fit = scratch_bytes / 4 / t_.num_cells - 1;
    t_.num_segments = fit < kWarps ? fit : kWarps;
    t_.cells = scratch;
    t_.segments = scratch + t_.num_cells;
    w_ = protocol::route_wave(c_.g, c_.num_tokens, 0, kMaxRouteChunks);
  }

  /// Before a CTA-wide barrier, then run().
  MEGAMOE_DEVICE void claim_ticket() {
    if (thread_ == 0) state_.ticket = protocol::claim(c_, &words().route_ticket[0]);
  }

  /// Works until no route ticket is left. False in all threads: aborted.
  MEGAMOE_DEVICE bool run() {
    for (;;) {
      const u32 ticket = state_.ticket;
      if (ticket >= w_.num_tickets()) return true;
      const bool counts = ticket < w_.chunks;
      chunk_ = ticket % w_.chunks;
      first_ = protocol::lesser(chunk_ * w_.chunk_tokens, w_.num_tokens);
      tokens_ = protocol::lesser(w_.chunk_tokens, w_.num_tokens - first_);
      first_ += w_.first_token;
      count();
      if (counts && !count_ticket()) return true;
      if (!counts && !write_ticket()) return false;
      __syncthreads();  // the ticket and the tables are free again
      claim_ticket();
      __syncthreads();
    }
  }

 private:
  MEGAMOE_DEVICE ParityWords& words() const { return *c_.m.words(c_.parity()); }

  /// Calls fn(contribution index, cell or kNone) for this warp's segment, 32 contributions at a
  /// time, by all lanes.
  static constexpr u32 kNone = 0xFFFFFFFFU;
  template <class Fn>
  MEGAMOE_DEVICE void for_each_contribution(Fn fn) const {
    if (warp_ >= t_.num_segments) return;
    const u32 per_segment = protocol::div_up(tokens_, t_.num_segments);
    const u32 begin = protocol::lesser(warp_ * per_segment, tokens_);
    const u32 end = protocol::lesser(begin + per_segment, tokens_);
    const u32 all = (end - begin) * c_.g.contributions;
    for (u32 base = 0; base < all; base += 32) {
      const u32 i = base + lane_;
      u32 index = 0, cell = kNone;
      if (i < all) {
        index = (first_ + begin) * c_.g.contributions + i;
        cell = cell_of(index);
      }
      fn(index, cell);
    }
  }
  MEGAMOE_DEVICE u32 cell_of(u32 index) const {
    const u32 token = index / c_.g.contributions, slot = index % c_.g.contributions;
    if (slot >= c_.g.top_k) {
      return c_.g.rank * c_.g.local_experts + c_.g.experts_per_rank + slot - c_.g.top_k;
    }
    const std::int64_t id =
        c_.m.topk_idx(c_.g.rank)[static_cast<std::size_t>(token) * c_.g.top_k + slot];
    if (!protocol::is_expert(c_.g, id)) {
      if (id != -1) protocol::record_bad_id(c_, token, slot, id);
      return kNone;
    }
    const protocol::Destination to = protocol::destination(c_.g, id);
    return to.rank * c_.g.local_experts + to.local_expert;
  }

  /// Position of this lane among the lanes of the same cell; `leader` counts them all.
  struct Place {
    u32 before, count;
    bool leader;
  };
  MEGAMOE_DEVICE Place place(u32 cell) const {
    const u32 same = __match_any_sync(kAll, cell);
    const u32 before = static_cast<u32>(__popc(same & ((1U << lane_) - 1)));
    return {before, static_cast<u32>(__popc(same)), before == 0 && cell != kNone};
  }

  /// Fills the tables with the chunk's counts: cells[] the sums, segments[] those of the segments
  /// before.
  MEGAMOE_DEVICE void count() {
    for (u32 i = thread_; i < t_.num_segments * t_.num_cells; i += kThreads) t_.segments[i] = 0;
    __syncthreads();
    u32* const mine = t_.segments + warp_ * t_.num_cells;
    for_each_contribution([&](u32, u32 cell) {
      const Place p = place(cell);
      if (p.leader) mine[cell] += p.count;
      __syncwarp();
    });
    __syncthreads();
    for (u32 cell = thread_; cell < t_.num_cells; cell += kThreads) {
      u32 sum = 0;
      for (u32 s = 0; s < t_.num_segments; ++s) {
        u32& segment = t_.segments[s * t_.num_cells + cell];
        const u32 n = segment;
        segment = sum;
        sum += n;
      }
      t_.cells[cell] = sum;
    }
    __syncthreads();
  }

  MEGAMOE_DEVICE protocol::Destination cell_at(u32 cell) const {
    return {cell / c_.g.local_experts, cell % c_.g.local_experts};
  }

  /// After count(): false when this CTA has nothing more to route.
  MEGAMOE_DEVICE bool count_ticket() {
    if (w_.chunks > 1) {
      for (u32 cell = thread_; cell < t_.num_cells; cell += kThreads) {
        protocol::store_chunk_count(c_, 0, chunk_, cell_at(cell), t_.cells[cell]);
      }
      __syncthreads();
    }
    if (thread_ == 0) state_.ticket = protocol::finish_counting(c_, 0, w_.chunks);
    __syncthreads();
    if (state_.ticket != 0) {
      if (w_.chunks > 1) load_all_chunks();
      scan_cells<true>();
    }
    if (w_.chunks > 1) return true;
    write_entries();
    return false;
  }

  /// After count(). False: aborted.
  MEGAMOE_DEVICE bool write_ticket() {
    bool counted = true;
    if (thread_ == 0) {
      counted = protocol::wait_counted(c_, 0, w_.chunks);
      if (!counted) state_.failed = 1;
    }
    if (__syncthreads_or(!counted)) return false;
    load_all_chunks();
    scan_cells<false>();
    write_entries();
    return true;
  }

  /// cells[] become the wave's totals; segments[] get the counts of earlier chunks added.
  MEGAMOE_DEVICE void load_all_chunks() {
    for (u32 cell = thread_; cell < t_.num_cells; cell += kThreads) {
      u32 all = 0, before = 0;
      for (u32 chunk = 0; chunk < w_.chunks; ++chunk) {
        if (chunk == chunk_) before = all;
        all += protocol::load_chunk_count(c_, 0, chunk, cell_at(cell));
      }
      t_.cells[cell] = all;
      for (u32 s = 0; s < t_.num_segments; ++s) t_.segments[s * t_.num_cells + cell] += before;
    }
    __syncthreads();
  }

  /// Totals become positions in the destination's list: one warp scans a destination's experts.
  /// Publishes the inclusive ends on the way, and what to expect back.
  template <bool kPublish>
  MEGAMOE_DEVICE void scan_cells() {
    for (u32 dst = warp_; dst < c_.g.ranks; dst += kWarps) {
      u32 carry = 0;
      for (u32 base = 0; base < c_.g.local_experts; base += 32) {
        const u32 e = base + lane_;
        const bool valid = e < c_.g.local_experts;
        u32& cell = t_.cells[dst * c_.g.local_experts + (valid ? e : 0)];
        const u32 n = valid ? cell : 0;
        u32 end = n;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
          const u32 below = __shfl_up_sync(kAll, end, step);
          if (lane_ >= step) end += below;
        }
        end += carry;
        if (valid) {
          if (kPublish) protocol::publish_count(c_, 0, {dst, e}, end);
          cell = end - n;
        }
        carry = __shfl_sync(kAll, end, 31);
      }
      // Nothing comes back in the dispatch-only mode. Waves that the call does not have carry their
      // totals over to the next.
      if (kPublish && lane_ < kMaxWaves) {
        const bool comes_back = lane_ == 0 && state_.rank.snapshot.x == nullptr;
        protocol::store_expected(c_, lane_, dst, comes_back ? carry : 0);
      }
    }
    __syncthreads();
  }

  MEGAMOE_DEVICE void write_entries() {
    u32* const mine = t_.segments + warp_ * t_.num_cells;
    for_each_contribution([&](u32 index, u32 cell) {
      const Place p = place(cell);
      if (cell != kNone) {
        const u32 position = t_.cells[cell] + mine[cell] + p.before;
        protocol::publish_entry(c_, 0, cell / c_.g.local_experts, position, index);
      }
      __syncwarp();
      if (p.leader) mine[cell] += p.count;
      __syncwarp();
    });
  }

  CtaState& state_;
  DeviceCall& c_;
  RouteTables t_;
  protocol::RouteWave w_;
  u32 thread_, warp_, lane_;
  u32 chunk_ = 0, first_ = 0, tokens_ = 0;
};

}  // namespace megamoe
