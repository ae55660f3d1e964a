#include "sim/cta_scheduler.hpp"

namespace megamoe::sim {

using protocol::lesser;

u32 TileScheduler::claim() { return protocol::claim(c_, &c_.m.words(c_.parity())->gemm_ticket[0]); }

TileInfo TileScheduler::info_of(u32 ticket) const {
  const protocol::GemmTile t = schedule_.tile(ticket);
  const protocol::Block b = shared_.plan.plan().block(t.block);
  const u32 per_tile = t.is_l2 ? c_.g.l2_tile_granules : c_.g.l1_tile_granules;
  const u32 all = t.is_l2 ? c_.g.hidden_granules : c_.g.intermediate_granules;
  const u32 first = t.tile * per_tile;
  return {false, t.is_l2, {t.block, b.expert, b.rows}, first, lesser(per_tile, all - first)};
}

TileScheduler::Conditions TileScheduler::conditions_of(u32 ticket) {
  const protocol::GemmTile t = schedule_.tile(ticket);
  Conditions both{t.is_l2 ? protocol::l1_wait(c_, t.block) : protocol::rows_wait(c_, t.block),
                  protocol::act_slot_wait(c_, t.block)};
  if (t.is_l2) both.room.target = 0;
  both.room_over = both.room.target == 0;
  return both;
}

/// What was met stays so until this tile is done, so it is not looked at again.
bool TileScheduler::look(Conditions& both) {
  if (!both.inputs_over)
    both.inputs_over = protocol::is_over(both.inputs, protocol::look_at(c_, both.inputs));
  if (!both.room_over)
    both.room_over = protocol::is_over(both.room, protocol::look_at(c_, both.room));
  return both.inputs_over && both.room_over;
}

bool TileScheduler::peek(u32 ticket) {
  if (ticket >= schedule_.num_tickets()) return false;
  Conditions both = conditions_of(ticket);
  if (is(c_, Mutant::peek_waits)) {
    u64 started = 0;
    u32 polls = 0;
    while (!look(both)) {
      if (!protocol::keep_waiting(c_, both.inputs.site, 0, started, polls)) return false;
    }
  }
  if (is(c_, Mutant::peek_without_act_slot)) both.room_over = true;
  return look(both);
}

bool TileScheduler::wait(Conditions both) {
  u64 started = 0;
  u32 polls = 0;
  while (!look(both)) {
    const bool may_run_ahead =
        at_ - first_ < shared_.shape.stages && at_ - first_ < shared_.shape.tile_stages;
    if (may_run_ahead && (is(c_, Mutant::stage_not_awaited) ||
                          has_arrived(c_, shared_.stage(at_).empty, shared_.round(at_)))) {
      start_weights();
      continue;
    }
    c_.env.agent().loads_per_poll =
        1 + (both.inputs_over ? 0 : 1) + (both.room_over ? 0 : 1) + (may_run_ahead ? 1 : 0);
    const protocol::SlotWait& open = both.inputs_over ? both.room : both.inputs;
    const bool goes_on = protocol::keep_waiting(c_, open.site, 0, started, polls);
    c_.env.agent().loads_per_poll = 2;
    if (!goes_on) return false;
  }
  return true;
}

/// Stage info before its first arrival; the weights themselves never change.
void TileScheduler::start_weights() {
  CtaShared::Stage& stage = shared_.stage(at_);
  fill_shared(c_, CellKind::stage, at_ % shared_.shape.stages, at_);
  if (at_ == first_) stage.info = tile_;
  arrive(c_, stage.full);
  ++at_;
}

void TileScheduler::start_acts(u64 at) {
  CtaShared::Stage& stage = shared_.stage(at);
  if (!tile_.end)
    stage.rows = tile_.is_l2 ? work_.load_act(tile_.block) : work_.load_pool(tile_.block);
  c_.env.machine().async_arrive(c_.env.agent(), &stage.full);
}

bool TileScheduler::wait_free() {
  return wait_barrier(c_, shared_.stage(at_).empty, shared_.round(at_),
                      protocol::Phase::free_stage);
}

bool TileScheduler::start_stage() {
  if (!wait_free()) return false;
  start_weights();
  start_acts(at_ - 1);
  return true;
}

/// The wait gave up: the stages that have weights get whatever the ring slot holds, and the first
/// says that there is no tile.
void TileScheduler::tell_end() {
  tile_.end = true;
  fill_shared(c_, CellKind::stage, first_ % shared_.shape.stages, first_);
  shared_.stage(first_).info = tile_;
}

bool TileScheduler::bring(u32 ticket) {
  tile_ = info_of(ticket);
  first_ = at_;
  if (!wait_free()) return false;
  start_weights();
  const bool there = ready_ || wait(conditions_of(ticket));
  ready_ = false;
  if (!there && (is(c_, Mutant::consumers_not_told) || is(c_, Mutant::barrier_wait_unbounded)))
    return false;
  // Of the act slot, which the epilogue is going to write by ordinary stores.
  if (!tile_.is_l2) c_.env.fence_proxy_async_to_generic();
  if (!there) tell_end();
  for (u64 at = first_; at < at_; ++at) start_acts(at);
  return there && load();
}

/// Stages whole, until `left` of the tile's are left.
bool TileScheduler::start_stages(u32 left) {
  while (first_ + shared_.shape.tile_stages > at_ + left) {
    if (!start_stage()) return false;
  }
  return true;
}

bool TileScheduler::load() {
  if (!start_stages(kClaimStages)) return false;
  next_ = is(c_, Mutant::tickets_out_of_order) ? ~0U : claim();
  if (!start_stages(kPeekStages)) return false;
  ready_ = peek(next_);
  return start_stages(0);
}

bool TileScheduler::load_end() {
  if (is(c_, Mutant::end_not_loaded)) return true;
  CtaShared::Stage& stage = shared_.stage(at_);
  if (!wait_free()) return false;
  fill_shared(c_, CellKind::stage, at_ % shared_.shape.stages, at_);
  stage.info.end = true;
  arrive(c_, stage.full);
  arrive(c_, stage.full);
  return true;
}

bool TileScheduler::run() {
  if (bring_all()) return true;
  if (is(c_, Mutant::consumers_not_told) || is(c_, Mutant::barrier_wait_unbounded)) return false;
  // What was started has landed before the CTA ends, and before math is told that no more comes.
  const u64 stages = shared_.shape.stages;
  for (u64 at = at_ > stages ? at_ - stages : 0; at < at_; ++at) {
    if (!wait_barrier(c_, shared_.stage(at).full, 2 * (shared_.round(at) + 1),
                      protocol::Phase::copies))
      return false;
  }
  arrive(c_, shared_.closed);
  return false;
}

bool TileScheduler::bring_all() {
  const bool out_of_order = is(c_, Mutant::tickets_out_of_order);
  u32 ticket = claim();
  while (ticket < schedule_.num_tickets()) {
    if (out_of_order) {
      const u32 later = claim();
      if (later < schedule_.num_tickets() && !bring(later)) return false;
    }
    if (!bring(ticket)) return false;
    ticket = out_of_order ? claim() : next_;
  }
  return load_end();
}

}  // namespace megamoe::sim
