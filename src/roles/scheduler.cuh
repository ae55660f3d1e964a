#pragma once

#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"
#include "roles/cta.cuh"
#include "roles/loader.cuh"
#include "roles/trace.cuh"

// Scheduler: one thread claims GEMM tickets in order, waits for their inputs and has the loader
// bring them into the CTA's ring.
// Waits for: rows_ready and l2_done (L1), l1_done (L2); empty[] of the ring.
// Publishes: full[] of the ring.

namespace megamoe {

/// Addresses and counts of the tiles of one rank.
template <class Shape>
class TileSources {
  using u32 = protocol::u32;

 public:
  MEGAMOE_DEVICE explicit TileSources(const CtaState& state)
      : rank_(state.rank), maps_(state.maps) {}

  MEGAMOE_DEVICE TileInfo info(const protocol::GemmTile& t, const protocol::Block& b) const {
    const protocol::Geometry& g = rank_.geometry;
    return {.flags = t.is_l2 ? kTileL2 : std::uint16_t{0},
            .k_blocks =
                static_cast<std::uint16_t>(t.is_l2 ? g.intermediate_granules : g.hidden_granules),
            .block = static_cast<std::int32_t>(t.block),
            .column = static_cast<std::int32_t>(t.tile),
            .rows = static_cast<std::int32_t>(b.rows)};
  }

  MEGAMOE_DEVICE TileSource source(const protocol::GemmTile& t, const protocol::Block& b) const {
    const protocol::Geometry& g = rank_.geometry;
    const bool shared = b.expert >= g.experts_per_rank;
    const u32 expert = shared ? b.expert - g.experts_per_rank : b.expert;
    const WeightScales& scales = shared ? rank_.shared : rank_.routed;
    return t.is_l2 ? l2(t, expert, shared, scales.w2) : l1(t, expert, shared, scales.w1);
  }

 private:
  MEGAMOE_DEVICE TileSource l1(const protocol::GemmTile& t, u32 expert, bool shared,
                               const float* scales) const {
    const protocol::Geometry& g = rank_.geometry;
    const u32 slot = t.block % g.pool_slots, k = g.hidden_granules;
    const float* of_expert =
        scales + static_cast<std::int64_t>(expert) * 2 * g.intermediate_granules * k;
    return {.weights = shared ? &maps_->shared_w1 : &maps_->w1,
            .acts = &maps_->pool,
            .expert = static_cast<int>(expert),
            .weight_row = static_cast<int>(t.tile) * Shape::kWeightRows,
            .act_row = static_cast<int>(slot) * Shape::kTokens,
            .act_scales = reinterpret_cast<const float*>(rank_.memory.pool_scales()) +
                          static_cast<std::int64_t>(slot) * k * Shape::kTokens,
            .weight_scales = {of_expert + t.tile * k,
                              of_expert + (g.intermediate_granules + t.tile) * k}};
  }
  MEGAMOE_DEVICE TileSource l2(const protocol::GemmTile& t, u32 expert, bool shared,
                               const float* scales) const {
    const protocol::Geometry& g = rank_.geometry;
    const u32 slot = t.block % g.act_slots, k = g.intermediate_granules;
    const float* of_expert = scales + static_cast<std::int64_t>(expert) * g.hidden_granules * k;
    const u32 first = 2 * t.tile, second = protocol::lesser(first + 1, g.hidden_granules - 1);
    return {.weights = shared ? &maps_->shared_w2 : &maps_->w2,
            .acts = &maps_->act,
            .expert = static_cast<int>(expert),
            .weight_row = static_cast<int>(t.tile) * Shape::kWeightRows,
            .act_row = static_cast<int>(slot) * Shape::kTokens,
            .act_scales = reinterpret_cast<const float*>(rank_.memory.act_scales()) +
                          static_cast<std::int64_t>(slot) * k * Shape::kTokens,
            .weight_scales = {of_expert + first * k, of_expert + second * k}};
  }

  const RankParams& rank_;
  const RankMaps* maps_;
};

/// By one thread. `ticket` is its first, claimed already. False: a wait gave up.
template <class RingType>
MEGAMOE_DEVICE bool schedule_tiles(const RingType& ring, const CtaState& state, DeviceCall& c,
                                   protocol::u32 ticket, const Tracer& trace) {
  using Shape = typename RingType::Shape;
  const LoadPolicies policies = load_policies<Shape>();
  const ptx::Patience patience = inner_patience(state);
  const protocol::GemmSchedule schedule{state.plan.num_blocks(), c.g.l1_tiles, c.g.l2_tiles,
                                        c.g.lag_blocks};
  const TileSources<Shape> sources(state);
  RingPosition at;
  bool ok = true;
  while (ok && ticket < schedule.num_tickets()) {
    // The next claim is under way while this tile is loaded.
    const protocol::u32 next = protocol::claim(c, &c.m.words(c.parity())->gemm_ticket[0]);
    trace.mark(TraceMark::tile_claimed, ticket);
    const protocol::GemmTile t = schedule.tile(ticket);
    const protocol::Block block = state.plan.block(t.block);
    ok = load_tile(
        ring, at, sources.source(t, block), sources.info(t, block), policies, patience, [&] {
          // The epilogue must not wait for the act slot: it would hold the accumulators.
          const bool ready =
              t.is_l2 ? protocol::wait_l1(c, t.block)
                      : protocol::wait_rows(c, t.block) && protocol::wait_act_slot(c, t.block);
          trace.mark(TraceMark::inputs_ready, ticket);
          return ready;
        });
    trace.mark(TraceMark::tile_loaded, ticket);
    ticket = next;
  }
  if (ok && load_end(ring, at, patience)) return true;
  load_drain(ring, at, patience);
  return false;
}

}  // namespace megamoe
