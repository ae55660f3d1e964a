#pragma once

#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"
#include "roles/cta.cuh"
#include "roles/loader.cuh"
#include "roles/trace.cuh"

// Scheduler: one warp claims GEMM tickets in order, waits for their inputs and has the loader bring
// them into the CTA's ring.
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
    const WeightPointers& weights = shared ? rank_.shared : rank_.routed;
    return t.is_l2 ? l2(t, expert, shared, weights) : l1(t, expert, shared, weights);
  }

 private:
  MEGAMOE_DEVICE TileSource l1(const protocol::GemmTile& t, u32 expert, bool shared,
                               const WeightPointers& w) const {
    const protocol::Geometry& g = rank_.geometry;
    const u32 slot = t.block % g.pool_slots, k = g.hidden_granules;
    const float* of_expert =
        w.w1_scales + static_cast<std::int64_t>(expert) * 2 * g.intermediate_granules * k;
    return {.weights = shared ? &maps_->shared_w1 : &maps_->w1,
            .codes = w.w1 + first_code(expert, 2 * g.intermediate_granules, t.tile, k),
            .code_bytes = code_bytes(2 * g.intermediate_granules, t.tile, k),
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
                               const WeightPointers& w) const {
    const protocol::Geometry& g = rank_.geometry;
    const u32 slot = t.block % g.act_slots, k = g.intermediate_granules;
    const float* of_expert =
        w.w2_scales + static_cast<std::int64_t>(expert) * g.hidden_granules * k;
    const u32 first = 2 * t.tile, second = protocol::lesser(first + 1, g.hidden_granules - 1);
    return {.weights = shared ? &maps_->shared_w2 : &maps_->w2,
            .codes = w.w2 + first_code(expert, g.hidden_granules, t.tile, k),
            .code_bytes = code_bytes(g.hidden_granules, t.tile, k),
            .acts = &maps_->act,
            .expert = static_cast<int>(expert),
            .weight_row = static_cast<int>(t.tile) * Shape::kWeightRows,
            .act_row = static_cast<int>(slot) * Shape::kTokens,
            .act_scales = reinterpret_cast<const float*>(rank_.memory.act_scales()) +
                          static_cast<std::int64_t>(slot) * k * Shape::kTokens,
            .weight_scales = {of_expert + first * k, of_expert + second * k}};
  }

  /// Where a tile's weights start among those of all experts, in bytes.
  static MEGAMOE_DEVICE std::int64_t first_code(u32 expert, u32 row_granules, u32 tile, u32 k) {
    const std::int64_t row =
        static_cast<std::int64_t>(expert) * row_granules * kGranule + tile * Shape::kWeightRows;
    return row * k * kGranule;
  }
  /// A tile may end before its 256 rows: with the expert.
  static MEGAMOE_DEVICE int code_bytes(u32 row_granules, u32 tile, u32 k) {
    const u32 rows = row_granules * kGranule - tile * Shape::kWeightRows;
    return static_cast<int>(protocol::lesser(rows, Shape::kWeightRows) * k) * kGranule;
  }

  const RankParams& rank_;
  const RankMaps* maps_;
};

/// The scheduler of a CTA: one warp, whose lane 0 issues the copies. Two lanes look at a tile's two
/// conditions at once.
template <class RingType>
class Scheduler {
  using u32 = protocol::u32;
  using Shape = typename RingType::Shape;
  static constexpr u32 kAll = 0xFFFFFFFFU;
  /// Weights that run ahead of their activations start at about the rate at which memory delivers
  /// them: a deeper queue would delay the rows that they wait for.
  static constexpr u32 kPaceCycles = Shape::kWeightBytes / 20;
  /// What a CTA may bring into L2 while it waits for its first rows, in steps of 32 pieces.
  static constexpr u32 kPrefetchPiece = 2048;
  static constexpr u32 kPrefetchBytes =
      Shape::kFamily == Family::decode ? 3 * 32 * kPrefetchPiece : 0;
  /// Stages before a tile's end at which the next ticket is claimed, and at which its inputs are
  /// looked at. Not earlier: adjacent tickets share weights, so they have to start together.
  static constexpr int kClaimStages = 5, kPeekStages = 3;

 public:
  MEGAMOE_DEVICE Scheduler(const RingType& ring, const CtaState& state, DeviceCall& call,
                           const Tracer& trace)
      : ring_(ring), state_(state), c_(call), trace_(trace) {}

  /// `ticket` is the first, of lane 0. False in all lanes: a wait gave up, and the fault is raised.
  MEGAMOE_DEVICE bool run(u32 ticket) {
    bool ok = true;
    bool ready = false;  // the tile's inputs were seen already
    ticket = __shfl_sync(kAll, ticket, 0);
    while (ok && ticket < schedule().num_tickets()) {
      u32 next = 0;
      trace_.mark(TraceMark::tile_claimed, ticket);
      ok = bring(ticket, next, ready);
      trace_.mark(TraceMark::tile_loaded, ticket);
      ticket = next;
    }
    if (lane() == 0 && !(ok && load_end(ring_, at_, patience()))) {
      protocol::raise_inner_fault(c_, kPhase, c_.g.rank, static_cast<u32>(at_.stage));
      load_drain(ring_, at_, patience());
      ok = false;
    }
    return __all_sync(kAll, ok) != 0;
  }

 private:
  static constexpr protocol::Phase kPhase = protocol::Phase::free_stage;
  static MEGAMOE_DEVICE int lane() { return ptx::lane_id(); }
  MEGAMOE_DEVICE ptx::Patience patience() const { return inner_patience(state_, kPhase); }
  /// Read anew from shared memory: cheaper than registers kept for it.
  MEGAMOE_DEVICE protocol::GemmSchedule schedule() const {
    return {c_.g, state_.plan.num_blocks()};
  }

  /// Brings the tile of `ticket`. On return `next` is the ticket after it, and `ready` says whether
  /// its inputs were seen.
  MEGAMOE_DEVICE bool bring(u32 ticket, u32& next, bool& ready) {
    const protocol::GemmTile t = schedule().tile(ticket);
    const protocol::Block block = state_.plan.block(t.block);
    const TileSources<Shape> sources(state_);
    const TileSource source = sources.source(t, block);
    const TileInfo info = sources.info(t, block);
    TileLoad<RingType> tile(ring_, at_, source, info, load_policies<Shape>());
    const bool issues = lane() == 0;
    const ptx::Patience patience = this->patience();
    if (!stage_is_free(patience)) return false;
    tile.start_weights(issues);
    const bool there = ready || wait(wait_of(t), tile, source);
    __syncwarp();  // what either lane has seen comes before lane 0's copies
    ready = false;
    trace_.mark(TraceMark::inputs_ready, ticket);
    if (!t.is_l2) c_.env.fence_proxy_async_to_generic();  // of the act slot; see wait_act_slot
    tile.start_acts(issues, there);
    if (!there) return false;
    while (tile.stages_left() > kClaimStages) {
      if (!start_stage(tile, patience)) return false;
    }
    if (issues) next = protocol::claim(c_, &c_.m.words(c_.parity())->gemm_ticket[0]);
    while (tile.stages_left() > kPeekStages) {
      if (!start_stage(tile, patience)) return false;
    }
    next = __shfl_sync(kAll, next, 0);
    ready = next < schedule().num_tickets() && looks_over(wait_of(schedule().tile(next)));
    while (tile.stages_left() > 0) {
      if (!start_stage(tile, patience)) return false;
    }
    return true;
  }

  /// False in all lanes: patience ran out.
  MEGAMOE_DEVICE bool stage_is_free(ptx::Patience patience) const {
    const bool free = ptx::mbarrier_wait(ring_.empty(at_.stage), at_.parity ^ 1, patience);
    return __all_sync(kAll, free) != 0;
  }
  /// Brings one stage whole. False in all lanes: patience ran out.
  MEGAMOE_DEVICE bool start_stage(TileLoad<RingType>& tile, ptx::Patience patience) const {
    const bool started = tile.start_stage(lane() == 0, patience);
    return __all_sync(kAll, started) != 0;
  }

  /// This lane's part of what a tile waits for: its inputs, and in L1 room for its results, so that
  /// the epilogue need not wait while it holds the accumulators.
  MEGAMOE_DEVICE protocol::SlotWait wait_of(const protocol::GemmTile& t) {
    if (lane() == 0)
      return t.is_l2 ? protocol::l1_wait(c_, t.block) : protocol::rows_wait(c_, t.block);
    protocol::SlotWait room = protocol::act_slot_wait(c_, t.block);
    if (t.is_l2 || lane() > 1) room.target = 0;
    return room;
  }

  /// One look by all lanes.
  MEGAMOE_DEVICE bool looks_over(const protocol::SlotWait& wait) {
    const bool over = wait.target == 0 || protocol::is_over(wait, protocol::look_at(c_, wait));
    return __all_sync(kAll, over) != 0;
  }

  /// Waits; meanwhile the weights of further stages start. False in all lanes: aborted.
  MEGAMOE_DEVICE bool wait(const protocol::SlotWait& wait, TileLoad<RingType>& tile,
                           const TileSource& source) {
    protocol::u64 started = 0;
    u32 polls = 0;
    u32 issued = static_cast<u32>(clock64());
    for (;;) {
      protocol::u64 seen = wait.target;
      if (wait.target != 0) seen = protocol::look_at(c_, wait);
      const bool over = protocol::is_over(wait, seen);
      if (__all_sync(kAll, over) != 0) return true;
      const bool goes_on = over || protocol::keep_waiting(c_, wait.site, seen, started, polls);
      if (__all_sync(kAll, goes_on) == 0) return false;
      const u32 now = __shfl_sync(kAll, static_cast<u32>(clock64()), 0);
      if (now - issued < kPaceCycles) continue;
      if (tile.may_run_ahead() && __all_sync(kAll, tile.next_is_free()) != 0) {
        tile.start_weights(lane() == 0);
        issued = now;
      } else if (prefetched_ + 32 * kPrefetchPiece <=
                 protocol::lesser(kPrefetchBytes, static_cast<u32>(source.code_bytes))) {
        // The ring is full, and memory idle: into L2 with some of what comes next.
        ptx::bulk_prefetch_l2(source.codes + prefetched_ + lane() * kPrefetchPiece, kPrefetchPiece);
        prefetched_ += 32 * kPrefetchPiece;
        issued = now;
      }
    }
  }

  const RingType& ring_;
  const CtaState& state_;
  DeviceCall& c_;
  const Tracer& trace_;
  RingPosition at_;
  u32 prefetched_ = 0;
};

}  // namespace megamoe
