#pragma once

#include <cstdio>
#include <string>

#include "sim/mutant.hpp"
#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace megamoe::sim {

/// One run; the trace goes to `live` as it happens unless that is nullptr.
Outcome run_seed(const Scenario& scenario, u64 seed, Mutant mutant, std::FILE* live = nullptr);

/// Many runs of one scenario.
struct Search {
  u64 runs = 0;
  u64 steps = 0;
  u64 red_seed = 0;
  Outcome red;  ///< the first failure, if there was one
  [[nodiscard]] bool is_red() const { return !red.failure.empty(); }
};
/// Runs the seeds from `first_seed` on until one fails or `count` have passed.
Search search(const Scenario& scenario, u64 first_seed, u64 count, Mutant mutant);

}  // namespace megamoe::sim
