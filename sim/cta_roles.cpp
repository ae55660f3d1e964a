#include "sim/cta_roles.hpp"

#include "protocol/combine.hpp"
#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::sim {

using protocol::lesser;
using protocol::tag_of;

void CtaRoles::arrive(SimCall& c, u64& barrier) {
  c.env.fetch_add<Order::release, Scope::cta>(&barrier, u64{1});
}

bool CtaRoles::wait_for(SimCall& c, const u64& barrier, u64 target) {
  if (is(c, Mutant::barrier_wait_unbounded)) {
    while (c.env.load<Order::acquire, Scope::cta>(&barrier) < target) c.env.pause();
    return true;
  }
  return protocol::wait_until(
      c, protocol::Site{protocol::Phase::none, c.g.rank, 0, target},
      [&] { return c.env.load<Order::acquire, Scope::cta>(&barrier); },
      [&](u64 seen) { return seen >= target; });
}

bool CtaRoles::wait_inputs(SimCall& c, const Tile& tile) {
  return tile.is_l2 ? protocol::wait_l1(c, tile.block.index)
                    : protocol::wait_rows(c, tile.block.index);
}

bool CtaRoles::queue_tile(SimCall& c, CtaShared& shared, Tile tile) {
  const u64 before = shared.tiles.size();
  if (before >= kAhead && !wait_for(c, shared.computed, before - kAhead)) return false;
  shared.tiles.push_back(std::move(tile));
  arrive(c, shared.queued);
  return true;
}

bool CtaRoles::queue_wave(SimCall& c, CtaShared& shared, const protocol::Plan& plan, u32 wave) {
  const protocol::GemmSchedule schedule(c.g, plan.num_blocks());
  const auto next = [&](Tile& tile) {
    const u32 ticket = protocol::claim(c, &c.m.words(c.parity())->gemm_ticket[wave]);
    if (ticket >= schedule.num_tickets()) return false;
    const protocol::GemmTile t = schedule.tile(ticket);
    const protocol::Block b = plan.block(t.block);
    const u32 per_tile = t.is_l2 ? c.g.l2_tile_granules : c.g.l1_tile_granules;
    const u32 all = t.is_l2 ? c.g.hidden_granules : c.g.intermediate_granules;
    const u32 first = t.tile * per_tile;
    tile = {false,
            t.is_l2,
            {plan.first_block + t.block, b.expert, b.rows},
            first,
            lesser(per_tile, all - first),
            wave,
            {}};
    return true;
  };
  Tile tile;
  while (next(tile)) {
    Tile later;
    if (is(c, Mutant::tickets_out_of_order) && next(later)) {
      if (!wait_inputs(c, later) || !queue_tile(c, shared, later)) return false;
    }
    if (!wait_inputs(c, tile) || !queue_tile(c, shared, tile)) return false;
  }
  return true;
}

bool CtaRoles::scheduler(SimCall& c, CtaShared& shared) {
  protocol::PlanStorage plan(c.g);
  for (u32 wave = 0; wave < c.g.num_waves; ++wave) {
    if (!plan.read(c, wave) || !queue_wave(c, shared, plan.plan(), wave)) return false;
  }
  Tile end;
  end.last = true;
  return queue_tile(c, shared, end);
}

bool CtaRoles::loader(SimCall& c, CtaShared& shared, Work& work) {
  for (u64 i = 0;; ++i) {
    if (!wait_for(c, shared.queued, i + 1)) return false;
    if (i >= kStages && !wait_for(c, shared.consumed, i + 1 - kStages)) return false;
    Tile& tile = shared.tiles[i];
    if (tile.last) return true;
    tile.rows = tile.is_l2 ? work.load_act(tile.block) : work.load_pool(tile.block);
    c.env.machine().async_arrive(c.env.agent(), &shared.loaded);
  }
}

bool CtaRoles::math(SimCall& c, CtaShared& shared, Work& work) {
  for (u64 i = 0;; ++i) {
    if (!wait_for(c, shared.queued, i + 1)) return false;
    const Tile& tile = shared.tiles[i];
    if (tile.last) {
      arrive(c, shared.computed);
      return true;
    }
    if (!wait_for(c, shared.loaded, i + 1)) return false;
    arrive(c, shared.consumed);
    if (tile.is_l2) {
      work.store_combine(tile.block, tile.first_granule, tile.granules, tile.rows);
    } else {
      if (is(c, Mutant::act_slot_not_awaited)) {
        c.env.fence_proxy_async_to_generic();
      } else if (!protocol::wait_act_slot(c, tile.block.index)) {
        return false;
      }
      work.store_act(tile.block, tile.first_granule, tile.granules, tile.rows);
    }
    arrive(c, shared.computed);
  }
}

void CtaRoles::publish(SimCall& c, Work& work, const Tile& tile) {
  if (!tile.is_l2) {
    protocol::publish_l1(c, tile.block.index, tile.granules);
    return;
  }
  for (u32 row = 0; row < tile.block.rows;) {
    const u32 src = tag_of(work.row_meta(tile.block, row));
    const u32 begin = row;
    while (row < tile.block.rows && tag_of(work.row_meta(tile.block, row)) == src) ++row;
    protocol::publish_contributions(c, tile.wave, src, row - begin, tile.granules);
  }
  protocol::publish_l2(c, tile.block.index, tile.granules);
}

bool CtaRoles::publisher(SimCall& c, CtaShared& shared, Work& work) {
  for (u64 i = 0;; ++i) {
    if (!wait_for(c, shared.computed, i + 1)) return false;
    if (shared.tiles[i].last) return true;
    publish(c, work, shared.tiles[i]);
  }
}

}  // namespace megamoe::sim
