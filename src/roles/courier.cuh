#pragma once

#include "config/kernel_config.hpp"
#include "protocol/ring.hpp"
#include "protocol/route.hpp"
#include "protocol/tickets.hpp"
#include "roles/cta.cuh"
#include "roles/pull.cuh"
#include "roles/trace.cuh"

// Courier: a warp brings rows from their source ranks into the pool, a chunk of a block at a time.
// Waits for: list entries; the pool slot (l1_done of the block before); its own copies.
// Publishes: rows_ready.

namespace megamoe {

/// The rows of one chunk, in shared memory of the courier's warp: lane 0 alone starts bulk copies.
struct PulledRows {
  PullRow row[kMaxPullRows];
};

class Courier {
  using u32 = protocol::u32;
  static constexpr u32 kAll = 0xFFFFFFFFU;

 public:
  MEGAMOE_DEVICE Courier(const CtaState& state, DeviceCall& call, PulledRows& rows,
                         const Tracer& trace)
      : state_(state), c_(call), rows_(rows), trace_(trace) {}

  MEGAMOE_DEVICE u32 claim_ticket() {
    u32 ticket = 0;
    if (lane() == 0) ticket = protocol::claim(c_, &c_.m.words(c_.parity())->pull_ticket[0]);
    return ticket;  // of lane 0
  }

  /// Works until no ticket is left; `ticket` is its first, of lane 0. copy(row_source, count,
  /// target) moves the rows and gives a PulledSoFar; drain(in_flight), by lane 0, ends the copies
  /// of one that did not move all. False in all lanes: aborted, or the fault is raised.
  template <class Copy, class Drain>
  MEGAMOE_DEVICE bool run(u32 ticket, const Copy& copy, const Drain& drain) {
    const u32 num_chunks = state_.plan.num_chunks();
    for (;;) {
      ticket = __shfl_sync(kAll, ticket, 0);
      if (ticket >= num_chunks) return true;
      trace_.mark(TraceMark::chunk_claimed, ticket);
      const u32 next = claim_ticket();  // under way while this chunk is pulled
      if (!pull(state_.plan.chunk(ticket), copy, drain)) return false;
      ticket = next;
    }
  }

 private:
  static MEGAMOE_DEVICE u32 lane() { return static_cast<u32>(ptx::lane_id()); }

  template <class Copy, class Drain>
  MEGAMOE_DEVICE bool pull(const protocol::PullChunk& chunk, const Copy& copy, const Drain& drain) {
    const protocol::Geometry& g = c_.g;
    u32 src = 0, index = 0;
    bool ok = find_entry(chunk, src, index);
    if (ok && lane() == 0) ok = protocol::wait_pool_slot(c_, chunk.block);
    if (__all_sync(kAll, ok) == 0) return false;
    trace_.mark(TraceMark::slot_free, chunk.block);
    const u32 token = index / g.contributions;
    const std::int64_t hidden = g.hidden_granules * kGranule;
    if (lane() < chunk.rows) {
      const std::byte* source = c_.m.peer(src);
      const SymmetricLayout& offsets = c_.m.symmetric();
      rows_.row[lane()] = {.x = source + offsets.x + token * hidden,
                           .scales = reinterpret_cast<const float*>(source + offsets.x_scales) +
                                     static_cast<std::int64_t>(token) * g.hidden_granules};
      metas_of(chunk)[lane()] = protocol::row_meta(src, index);
    }
    __syncwarp();
    const std::int64_t slot_row =
        static_cast<std::int64_t>(chunk.block % g.pool_slots) * g.block_rows;
    const PullTarget target = {.x = c_.m.pool() + (slot_row + chunk.row_in_block) * hidden,
                               .scales = reinterpret_cast<float*>(c_.m.pool_scales()) +
                                         slot_row * g.hidden_granules + chunk.row_in_block,
                               .row_bytes = static_cast<int>(hidden),
                               .block_rows = static_cast<int>(g.block_rows)};
    const PulledRows& rows = rows_;
    const auto row_source = [&rows](int i) { return rows.row[i]; };
    const PulledSoFar pulled = copy(row_source, static_cast<int>(chunk.rows), target);
    __syncwarp();
    if (pulled.rows < static_cast<int>(chunk.rows)) {
      if (lane() == 0) {
        const u32 late = protocol::tag_of(metas_of(chunk)[pulled.rows]);
        protocol::raise_inner_fault(c_, protocol::Phase::copies, late, chunk.block);
        drain(pulled.in_flight);
      }
      return false;
    }
    trace_.mark(TraceMark::chunk_pulled, chunk.block);
    if (lane() == 0) protocol::publish_rows(c_, chunk.block, chunk.ready_units);
    return true;
  }

  MEGAMOE_DEVICE protocol::u64* metas_of(const protocol::PullChunk& chunk) const {
    return c_.m.row_metas() +
           static_cast<std::int64_t>(chunk.block % c_.g.meta_slots()) * c_.g.block_rows +
           chunk.row_in_block;
  }

  /// Lane i < chunk.rows finds where its row comes from: rows of an expert are ordered by source.
  /// Executed by all lanes; false in lanes whose entry did not come.
  MEGAMOE_DEVICE bool find_entry(const protocol::PullChunk& chunk, u32& src, u32& index) {
    const u32 row = chunk.row_in_expert + lane();
    u32 before = 0;    // rows of the sources so far
    u32 position = 0;  // in the list of src
    src = c_.g.ranks;
    for (u32 base = 0; base < c_.g.ranks; base += 32) {
      const u32 mine = base + lane();
      u32 begin = 0, count = 0;
      if (mine < c_.g.ranks) {
        begin = chunk.expert == 0 ? 0 : known_end(mine, chunk.expert - 1);
        count = known_end(mine, chunk.expert) - begin;
      }
      const u32 here = protocol::lesser(32, c_.g.ranks - base);
      for (u32 i = 0; i < here; ++i) {
        const u32 n = __shfl_sync(kAll, count, i), first = __shfl_sync(kAll, begin, i);
        if (row >= before && row < before + n) {
          src = base + i;
          position = first + row - before;
        }
        before += n;
      }
    }
    return lane() >= chunk.rows || protocol::read_entry(c_, 0, src, position, index);
  }

  MEGAMOE_DEVICE u32 known_end(u32 src, u32 expert) const {
    const u32 word = src * c_.g.local_experts + expert;
    return word < kKeptEnds ? state_.ends[word] : protocol::known_end(c_, 0, src, expert);
  }

  const CtaState& state_;
  DeviceCall& c_;
  PulledRows& rows_;
  const Tracer& trace_;
};

}  // namespace megamoe
