#pragma once

#include <cstdio>
#include <string>

#include "sim/mutant.hpp"
#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace megamoe::sim {

/// How far a systematic exploration goes.
struct Bounds {
  u32 preemptions = 2;      ///< switches away from an agent that could go on
  u32 stale_per_agent = 1;  ///< 0 or 1: loads that return an older store than the newest visible
  u64 max_runs = 1'000'000;
};

struct Exploration {
  u64 runs = 0;    ///< followed to their end
  u64 cut = 0;     ///< left where they came to a known state
  u64 states = 0;  ///< known, at points with a choice
  u64 steps = 0;
  bool complete = false;  ///< every schedule within the bounds was followed
  Outcome red;            ///< the first failure, if there was one
};

/// Follows every schedule of a scenario within the bounds, from the start each time, leaving those
/// that come to a state which was seen with the same budget left. Agents switch only before words
/// that more than one agent uses: the order of other steps makes no difference.
/// A schedule that failed is followed once more with every step printed to `red_trace`, if given.
Exploration explore(const Scenario& scenario, u64 seed, Mutant mutant, const Bounds& bounds,
                    std::FILE* red_trace = nullptr);

}  // namespace megamoe::sim
