#pragma once

#include "config/kernel_config.hpp"
#include "config/rings.hpp"
#include "megamoe/problem.hpp"
#include "protocol/env.hpp"

namespace megamoe::protocol {

/// The numbers of one call that follow from the Problem and this rank's configuration; the same for
/// all its CTAs.
struct Geometry {
  u32 ranks = 0;
  u32 rank = 0;
  u32 experts = 0;           ///< routed, whole group
  u32 experts_per_rank = 0;  ///< routed, per rank
  u32 local_experts = 0;     ///< routed per rank, then shared
  u32 top_k = 0;
  u32 contributions = 0;  ///< top_k + shared experts
  u32 capacity = 0;
  u32 hidden_granules = 0;        ///< hidden / 128
  u32 intermediate_granules = 0;  ///< intermediate / 128
  u32 num_waves = 1;
  u32 block_rows = 0;
  u32 pull_rows = 0;
  u32 route_tokens = 0;
  u32 sum_tokens = 0;
  u32 pool_slots = 0;
  u32 act_slots = 0;
  u32 l1_tile_granules = 0;
  u32 l2_tile_granules = 0;
  u32 l1_tiles = 0;  ///< tiles of one block
  u32 l2_tiles = 0;
  u32 group_blocks = 1;
  u32 lag_blocks = 0;
  u32 list_entries = 0;  ///< per (parity, source)

  /// Slots of the ring of row metadata: a row's metadata lives from its pull to its L2.
  [[nodiscard]] MEGAMOE_HD constexpr u32 meta_slots() const { return pool_slots + act_slots; }
};

constexpr Geometry make_geometry(const Problem& p, const KernelConfig& c, int rank,
                                 u32 list_entries) {
  const RingSlots slots = ring_slots(p, c);
  Geometry g;
  g.ranks = p.ranks;
  g.rank = rank;
  g.experts = p.experts;
  g.experts_per_rank = p.experts_per_rank();
  g.local_experts = p.local_experts();
  g.top_k = p.top_k;
  g.contributions = p.contributions();
  g.capacity = p.max_tokens_per_rank;
  g.hidden_granules = p.hidden / kGranule;
  g.intermediate_granules = p.intermediate / kGranule;
  g.num_waves = c.num_waves;
  g.block_rows = c.block_rows;
  g.pull_rows = c.pull_rows;
  g.route_tokens = c.route_tokens;
  g.sum_tokens = c.sum_tokens;
  g.pool_slots = slots.pool;
  g.act_slots = slots.act;
  g.l1_tile_granules = c.l1_tile_channels / kGranule;
  g.l2_tile_granules = c.l2_tile_channels / kGranule;
  g.l1_tiles = ceil_div(p.intermediate, c.l1_tile_channels);
  g.l2_tiles = ceil_div(p.hidden, c.l2_tile_channels);
  g.group_blocks = c.group_blocks;
  g.lag_blocks = c.lag_blocks;
  g.list_entries = list_entries;
  return g;
}

/// The tokens of one wave on one rank, and how its routing is cut into tickets.
struct RouteWave {
  u32 first_token = 0;
  u32 num_tokens = 0;
  u32 chunks = 0;  ///< at least 1, so that a rank without tokens publishes its zero counts
  u32 chunk_tokens = 0;
  /// A single chunk counts and writes under one ticket; otherwise all count, then all write.
  [[nodiscard]] MEGAMOE_HD constexpr u32 num_tickets() const {
    return chunks == 1 ? 1 : 2 * chunks;
  }
};

MEGAMOE_HD constexpr u32 div_up(u32 a, u32 b) { return (a + b - 1) / b; }
MEGAMOE_HD constexpr u32 lesser(u32 a, u32 b) { return a < b ? a : b; }

MEGAMOE_HD constexpr RouteWave route_wave(const Geometry& g, u32 num_tokens, u32 wave,
                                          u32 max_chunks) {
  const u32 wave_tokens = div_up(num_tokens, g.num_waves);
  RouteWave w;
  w.first_token = lesser(wave * wave_tokens, num_tokens);
  w.num_tokens = lesser(wave_tokens, num_tokens - w.first_token);
  w.chunks = lesser(div_up(w.num_tokens, g.route_tokens), max_chunks);
  if (w.chunks == 0) w.chunks = 1;
  w.chunk_tokens = div_up(w.num_tokens, w.chunks);
  return w;
}

/// First list entry of a wave: by capacity, so that readers need not know the source's token count.
MEGAMOE_HD constexpr u32 list_base(const Geometry& g, u32 wave) {
  return wave * div_up(g.capacity, g.num_waves) * g.contributions;
}

/// Where an expert id leads; false for -1 and for ids out of range.
struct Destination {
  u32 rank = 0;
  u32 local_expert = 0;
};
MEGAMOE_HD constexpr bool is_expert(const Geometry& g, std::int64_t id) {
  return id >= 0 && id < static_cast<std::int64_t>(g.experts);
}
MEGAMOE_HD constexpr Destination destination(const Geometry& g, std::int64_t id) {
  const u32 expert = static_cast<u32>(id);
  return {expert / g.experts_per_rank, expert % g.experts_per_rank};
}

}  // namespace megamoe::protocol
