#pragma once

#include "protocol/combine.hpp"
#include "protocol/ring.hpp"
#include "roles/cta.cuh"
#include "roles/done_ring.cuh"
#include "roles/trace.cuh"

// Publisher: one warp that releases finished tiles, so that no consumer warp waits for a fence.
// Waits for: the done ring.
// Publishes: l1_done; arrived on the sources of a tile's rows, then l2_done.

namespace megamoe {

/// One addition per source with rows in the tile: rows of a block are ordered by source. By a warp.
template <class Shape>
MEGAMOE_DEVICE void publish_tile_contributions(DeviceCall& c, const TileInfo& tile,
                                               protocol::u32 granules) {
  const int lane = ptx::lane_id();
  using protocol::u32;
  constexpr int kPerLane = (Shape::kTokens + 31) / 32;
  constexpr u32 kAll = 0xFFFFFFFFU, kNobody = 0xFFFFFFFFU;
  const protocol::u64* metas =
      c.m.row_metas() + static_cast<std::int64_t>(tile.block % c.g.meta_slots()) * Shape::kTokens;
  u32 src[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int row = lane + 32 * i;
    src[i] = row < tile.rows ? protocol::tag_of(metas[row]) : kNobody;
  }
  // Source by source in ascending order; lane n keeps the n-th, so that all publish at once.
  u32 my_src = kNobody, my_rows = 0;
  int found = 0;
  for (u32 next = 0;;) {
    u32 lowest = kNobody;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (src[i] >= next && src[i] < lowest) lowest = src[i];
    }
    lowest = __reduce_min_sync(kAll, lowest);
    if (lowest == kNobody) break;
    u32 rows = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) rows += __popc(__ballot_sync(kAll, src[i] == lowest));
    if (found % 32 == lane) {
      my_src = lowest;
      my_rows = rows;
    }
    next = lowest + 1;
    if (++found % 32 == 0) {
      protocol::publish_contributions(c, 0, my_src, my_rows, granules);
      my_src = kNobody;
    }
  }
  if (my_src != kNobody) protocol::publish_contributions(c, 0, my_src, my_rows, granules);
}

/// By a warp. False in all lanes: patience ran out.
template <class Shape>
MEGAMOE_DEVICE bool publish_tiles(const DoneRing<Shape>& done, const CtaState& state, DeviceCall& c,
                                  const Tracer& trace) {
  constexpr protocol::Phase kPhase = protocol::Phase::finished_tile;
  const ptx::Patience patience = inner_patience(state, kPhase);
  typename DoneRing<Shape>::Position at = 0;
  TileInfo tile;
  for (;;) {
    if (!done.pop(at, tile, patience)) {
      if (ptx::lane_id() == 0) protocol::raise_inner_fault(c, kPhase, c.g.rank, at);
      return false;
    }
    if ((tile.flags & kTileEnd) != 0) return true;
    trace.mark(TraceMark::tile_popped, tile.block);
    if ((tile.flags & kTileL2) == 0) {
      // One tile is one granule of the intermediate.
      if (ptx::lane_id() == 0) protocol::publish_l1(c, tile.block, 1);
      trace.mark(TraceMark::tile_published, tile.block);
      continue;
    }
    const protocol::u32 granules = protocol::lesser(2, c.g.hidden_granules - 2 * tile.column);
    publish_tile_contributions<Shape>(c, tile, granules);
    __syncwarp();
    if (ptx::lane_id() == 0) protocol::publish_l2(c, tile.block, granules);
    trace.mark(TraceMark::tile_published, tile.block);
  }
}

}  // namespace megamoe
