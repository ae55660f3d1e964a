#pragma once

#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"
#include "roles/cta.cuh"

// Dispatch-only mode: one warp stands in for L1 and L2. It copies each block's rows, scales and
// metadata out of the rings into the dense snapshot and releases the slots, so that any routing
// finishes.
// Waits for: rows_ready, and l2_done of the block that had the act slot.
// Publishes: l1_done, l2_done.

namespace megamoe {

MEGAMOE_DEVICE void snapshot_block(const CtaState& state, const DeviceCall& c,
                                   protocol::u32 block_index, protocol::u32 lane) {
  using protocol::u32;
  const protocol::Geometry& g = c.g;
  const DispatchSnapshot& to = state.rank.snapshot;
  const protocol::Block b = state.plan.block(block_index);
  const u32 before = b.expert == 0 ? 0 : state.row_end[b.expert - 1];
  const std::int64_t slot_row =
      static_cast<std::int64_t>(block_index % g.pool_slots) * g.block_rows;
  const std::int64_t meta_row =
      static_cast<std::int64_t>(block_index % g.meta_slots()) * g.block_rows;
  const std::int64_t hidden = g.hidden_granules * kGranule;
  const float* scales =
      reinterpret_cast<const float*>(c.m.pool_scales()) + slot_row * g.hidden_granules;
  for (u32 row = 0; row < b.rows; ++row) {
    const std::int64_t out = before + b.row_in_expert + row;
    const std::byte* from = c.m.pool() + (slot_row + row) * hidden;
    for (u32 i = lane * 16; i < hidden; i += 32 * 16) {
      ptx::store_16(to.x + out * hidden + i, ptx::load_16(from + i));
    }
    for (u32 group = lane; group < g.hidden_granules; group += 32) {
      to.x_scales[out * g.hidden_granules + group] = scales[group * g.block_rows + row];
    }
    if (lane == 0) {
      const protocol::u64 meta = c.m.row_metas()[meta_row + row];
      const u32 src = protocol::tag_of(meta), index = protocol::value_of(meta);
      const u32 token = index / g.contributions, slot = index % g.contributions;
      to.meta[out] = meta;
      to.weights[out] = slot < g.top_k ? c.m.topk_weights(src)[token * g.top_k + slot] : 1.0F;
    }
  }
}

/// By one warp; `ticket` is its first GEMM ticket, of lane 0. False in all lanes: aborted.
MEGAMOE_DEVICE bool snapshot_blocks(const CtaState& state, DeviceCall& c, protocol::u32 ticket,
                                    protocol::u32 lane) {
  using protocol::u32;
  constexpr u32 kAll = 0xFFFFFFFFU;
  const protocol::GemmSchedule schedule(c.g, state.plan.num_blocks());
  if (c.cta == 0) {
    for (u32 e = lane; e < c.g.local_experts; e += 32) {
      state.rank.snapshot.rows[e] = state.plan.rows_of(e);
    }
  }
  for (;;) {
    ticket = __shfl_sync(kAll, ticket, 0);
    if (ticket >= schedule.num_tickets()) return true;
    const protocol::GemmTile t = schedule.tile(ticket);
    if (t.tile == 0) {  // a block's first tile stands for all
      bool ok = true;
      if (lane == 0) {
        ok = t.is_l2 ? protocol::wait_l1(c, t.block)
                     : protocol::wait_rows(c, t.block) && protocol::wait_act_slot(c, t.block);
      }
      if (__all_sync(kAll, ok) == 0) return false;
      if (!t.is_l2) snapshot_block(state, c, t.block, lane);
      __syncwarp();
      if (lane == 0 && !t.is_l2) protocol::publish_l1(c, t.block, c.g.intermediate_granules);
      if (lane == 0 && t.is_l2) protocol::publish_l2(c, t.block, c.g.hidden_granules);
    }
    if (lane == 0) ticket = protocol::claim(c, &c.m.words(c.parity())->gemm_ticket[0]);
  }
}

}  // namespace megamoe
