#include "sim/cta_roles.hpp"

#include "protocol/combine.hpp"
#include "protocol/leave.hpp"
#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::sim {

using protocol::Phase;
using protocol::tag_of;

bool CtaRoles::pull(SimCall& c, CtaShared& shared, Work& work) {
  const protocol::Plan& plan = shared.plan.plan();
  u32* const tickets = &c.m.words(c.parity())->pull_ticket[0];
  u32 ticket = protocol::claim(c, tickets);
  while (ticket < plan.num_chunks()) {
    const u32 next = protocol::claim(c, tickets);
    const protocol::PullChunk chunk = plan.chunk(ticket);
    std::vector<protocol::PlanStorage::Position> from(chunk.rows);
    std::vector<u32> index(chunk.rows);
    for (u32 i = 0; i < chunk.rows; ++i) {
      from[i] = shared.plan.locate(c.g, chunk.expert, chunk.row_in_expert + i);
      if (!protocol::read_entry(c, 0, from[i].src, from[i].entry, index[i])) return false;
    }
    if (!protocol::wait_pool_slot(c, chunk.block)) return false;
    for (u32 i = 0; i < chunk.rows; ++i)
      work.pull_row(from[i].src, index[i], chunk.block, chunk.row_in_block + i);
    protocol::publish_rows(c, chunk.block, chunk.ready_units);
    ticket = next;
  }
  return true;
}

namespace {

/// Hands a tile to the publisher.
bool push_done(SimCall& c, CtaShared& shared, u64& at, const TileInfo& tile) {
  const u64 slot = at % CtaShared::kDoneSlots;
  CtaShared::Done& done = shared.done[slot];
  if (!is(c, Mutant::done_slot_not_awaited) &&
      !wait_barrier(c, done.empty, at / CtaShared::kDoneSlots, Phase::tile_room))
    return false;
  fill_shared(c, CellKind::done_slot, slot, at);
  done.info = tile;
  arrive(c, done.full);
  ++at;
  return true;
}

bool pop_done(SimCall& c, CtaShared& shared, u64& at, TileInfo& tile) {
  const u64 slot = at % CtaShared::kDoneSlots;
  CtaShared::Done& done = shared.done[slot];
  if (!wait_barrier(c, done.full, at / CtaShared::kDoneSlots + 1, Phase::finished_tile))
    return false;
  expect_shared(c, CellKind::done_slot, slot, at);
  tile = done.info;
  arrive(c, done.empty);
  ++at;
  return true;
}

/// Uses up one stage of the ring.
void consume_stage(SimCall& c, CtaShared& shared, u64 at) {
  CtaShared::Stage& stage = shared.stage(at);
  const bool early = is(c, Mutant::stage_released_early);
  if (early) arrive(c, stage.empty);
  expect_shared(c, CellKind::stage, at % shared.shape.stages, at);
  if (!early) arrive(c, stage.empty);
}

void store_results(Work& work, const TileInfo& tile, const std::vector<u64>& rows) {
  if (tile.is_l2) {
    work.store_combine(tile.block, tile.first_granule, tile.granules, rows);
  } else {
    work.store_act(tile.block, tile.first_granule, tile.granules, rows);
  }
}

/// Until the ring says that no tile follows. False: patience ran out.
bool consume_tiles(SimCall& c, CtaShared& shared, Work& work, u64& finished) {
  u64 at = 0;
  const auto wait_full = [&] {
    return wait_barrier(c, shared.stage(at).full, 2 * (shared.round(at) + 1), Phase::full_stage,
                        &shared.closed);
  };
  for (;;) {
    if (!wait_full()) return false;
    const TileInfo tile = shared.stage(at).info;
    if (tile.end) {
      expect_shared(c, CellKind::stage, at % shared.shape.stages, at);
      return true;
    }
    const std::vector<u64> rows = shared.stage(at).rows;
    for (u32 stage = 0; stage < shared.shape.tile_stages; ++stage, ++at) {
      if (stage > 0 && !wait_full()) return false;
      consume_stage(c, shared, at);
    }
    const bool early = is(c, Mutant::pushed_before_stores);
    if (early && !push_done(c, shared, finished, tile)) return false;
    store_results(work, tile, rows);
    if (!early && !push_done(c, shared, finished, tile)) return false;
  }
}

}  // namespace

bool CtaRoles::math(SimCall& c, CtaShared& shared, Work& work) {
  u64 finished = 0;
  const bool ok = consume_tiles(c, shared, work, finished);
  if (is(c, Mutant::end_not_pushed)) return ok;
  TileInfo end;
  end.end = true;
  return push_done(c, shared, finished, end) && ok;
}

bool CtaRoles::publish(SimCall& c, CtaShared& shared, Work& work) {
  if (protocol::claim(c, &c.m.words(c.parity())->clear_ticket) == 0)
    protocol::clear_other_parity(c);
  TileInfo tile;
  for (u64 at = 0;;) {
    if (!pop_done(c, shared, at, tile)) return false;
    if (tile.end) return true;
    if (!tile.is_l2) {
      protocol::publish_l1(c, tile.block.index, tile.granules);
      continue;
    }
    for (u32 row = 0; row < tile.block.rows;) {
      const u32 src = tag_of(work.row_meta(tile.block, row));
      const u32 begin = row;
      while (row < tile.block.rows && tag_of(work.row_meta(tile.block, row)) == src) ++row;
      protocol::publish_contributions(c, 0, src, row - begin, tile.granules);
    }
    protocol::publish_l2(c, tile.block.index, tile.granules);
  }
}

bool CtaRoles::sum(SimCall& c, const CtaShared& shared, Work& work) {
  const u32 pieces = protocol::div_up(c.g.hidden_granules, shared.shape.sum_granules);
  const u32 whole = protocol::lesser(shared.shape.whole_tokens, c.num_tokens);
  const u32 num_tickets = whole + (c.num_tokens - whole) * pieces;
  if (num_tickets == 0) return true;
  u32* const tickets = &c.m.words(c.parity())->sum_ticket[0];
  bool arrived = false;
  u32 ticket = protocol::claim(c, tickets);
  while (ticket < num_tickets) {
    const u32 next = protocol::claim(c, tickets);
    for (u32 dst = 0; !arrived && dst < c.g.ranks; ++dst) {
      if (!protocol::wait_arrived(c, 0, dst)) return false;
    }
    arrived = true;
    if (ticket < whole) {
      work.sum_piece(ticket, 0, c.g.hidden_granules);
    } else {
      const u32 first = (ticket - whole) % pieces * shared.shape.sum_granules;
      work.sum_piece(whole + (ticket - whole) / pieces, first,
                     protocol::lesser(shared.shape.sum_granules, c.g.hidden_granules - first));
    }
    ticket = next;
  }
  return true;
}

}  // namespace megamoe::sim
