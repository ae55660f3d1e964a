#pragma once

#include <array>
#include <vector>

#include "protocol/agents/plan_storage.hpp"
#include "sim/work.hpp"

namespace megamoe::sim {

using SimCall = protocol::Call<SimEnv>;

/// What travels with a tile's first stage: math and publisher know nothing of the schedule.
struct TileInfo {
  bool end = false;  ///< no tile: who reads it leaves
  bool is_l2 = false;
  protocol::BlockRef block;
  u32 first_granule = 0;
  u32 granules = 0;
};

/// How a CTA cuts its work; the protocol does not depend on it.
struct CtaShape {
  u32 stages = 2;        ///< of the ring of operands
  u32 tile_stages = 1;   ///< of one tile; may be more than the ring has
  u32 whole_tokens = 0;  ///< the first ones, each a sum ticket; the others are cut into pieces
  u32 sum_granules = 1;  ///< of a sum ticket: a piece of one token
};

/// Shared memory of a CTA. Barriers count arrivals of all rounds instead of flipping a parity.
struct CtaShared {
  static constexpr u32 kMaxStages = 3;
  static constexpr u32 kDoneSlots = 2;

  /// A stage of operands. `full` gets two arrivals a round, of the weights' start and of the
  /// activations' copies; `empty` one, when math is done with it.
  struct Stage {
    u64 full = 0;
    u64 empty = 0;
    TileInfo info;  ///< in a tile's first stage
    std::vector<u64> rows;
  };
  /// A finished tile on its way from math to the publisher.
  struct Done {
    u64 full = 0;
    u64 empty = 0;
    TileInfo info;
  };

  CtaShared(const protocol::Geometry& g, const CtaShape& cta_shape) : plan(g), shape(cta_shape) {}

  Stage& stage(u64 at) { return ring[at % shape.stages]; }
  [[nodiscard]] u64 round(u64 at) const { return at / shape.stages; }

  protocol::PlanStorage plan;  ///< written before the roles part
  CtaShape shape;
  u64 closed = 0;  ///< one arrival of a scheduler that has given up: no stage comes any more
  std::array<Stage, kMaxStages> ring;
  std::array<Done, kDoneSlots> done;
};

inline bool is(SimCall& c, Mutant mutant) { return c.env.machine().mutation().is(mutant); }

/// One arrival at a barrier in shared memory.
void arrive(SimCall& c, u64& barrier);
/// One look at a barrier.
[[nodiscard]] bool has_arrived(SimCall& c, const u64& barrier, u64 target);
/// Waits for `target` arrivals. It does not look at the abort word: the role that should arrive
/// does, and tells. False: patience of this phase ran out, or `closed`, where there is one, has its
/// arrival and the barrier still has not; then the fault is raised, unless the call is over.
[[nodiscard]] bool wait_barrier(SimCall& c, const u64& barrier, u64 target, protocol::Phase phase,
                                const u64* closed = nullptr);

/// The copy of a tile's K or info that a stage or a slot of the done ring holds, for races in
/// shared memory: who writes says which one it is, who reads what it expects.
void fill_shared(SimCall& c, CellKind kind, u64 slot, u64 which);
void expect_shared(SimCall& c, CellKind kind, u64 slot, u64 which);

}  // namespace megamoe::sim
