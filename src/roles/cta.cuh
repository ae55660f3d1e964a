#pragma once

#include "protocol/leave.hpp"
#include "protocol/plan.hpp"
#include "ptx/mbarrier.cuh"
#include "roles/device_env.cuh"
#include "roles/rank_params.hpp"
#include "roles/tile_shape.hpp"

// What all roles of a CTA share, in shared memory: the rank it serves, the call it is in, and the
// plan. Written before the roles part, read-only afterwards, except `math_gave_up`.

namespace megamoe {

/// Count words that a CTA keeps, [ranks][local experts]; larger groups read them again.
inline constexpr int kKeptEnds = 1024;
inline constexpr int kMaxLocalExperts = kMaxExpertsPerRank + kMaxSharedExperts;

struct CtaState {
  RankParams rank;
  const RankMaps* maps;
  protocol::Entry entry;
  protocol::u32 launch_ranks;
  protocol::u32 generation;
  std::uint64_t deadline_ns;
  protocol::u32 failed;          ///< before the roles part: the call does not finish on this rank
  protocol::Phase math_gave_up;  ///< in which wait inside the CTA
  protocol::u32 ticket;          ///< broadcast by one thread between two CTA-wide barriers
  protocol::u32
      traced[kMaxTraceLists];  ///< events that each warp has recorded; the last list is the CTA's
  protocol::u32 cleared;       ///< ticket for clearing the other parity
  protocol::Plan plan;
  protocol::u32 ends[kKeptEnds];  ///< as published: inclusive ends in each source's list
  protocol::u32 row_end[kMaxLocalExperts];
  protocol::u32 block_end[kMaxLocalExperts];
  protocol::u32 chunk_end[kMaxLocalExperts];
};

MEGAMOE_DEVICE DeviceCall make_call(DeviceEnv& env, const CtaState& state, protocol::Role role) {
  return {.env = env,
          .g = state.rank.geometry,
          .m = state.rank.memory,
          .record = state.rank.record,
          .deadline_ns = state.deadline_ns,
          .num_tokens = state.rank.num_tokens,
          .grid = state.entry.grid,
          .cta = state.entry.cta,
          .epoch = state.entry.epoch,
          .generation = state.generation,
          .role = role};
}

/// Of a wait inside the CTA. It ends on its own when the awaited role ends; this bound is for the
/// case that it does not.
MEGAMOE_DEVICE ptx::Patience inner_patience(const CtaState& state, protocol::Phase phase) {
  constexpr std::uint64_t kMarginNs = 1'000'000'000;
  return {protocol::inner_patience_ns(phase, state.deadline_ns, kMarginNs)};
}

}  // namespace megamoe
