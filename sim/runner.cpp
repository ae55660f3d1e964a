#include "sim/runner.hpp"

namespace megamoe::sim {

Outcome run_seed(const Scenario& scenario, u64 seed, Mutant mutant, std::FILE* live) {
  SeededPolicy policy(seed);
  return World(scenario, seed, mutant, policy, live).run();
}

Search search(const Scenario& scenario, u64 first_seed, u64 count, Mutant mutant) {
  Search result;
  for (u64 seed = first_seed; seed < first_seed + count; ++seed) {
    Outcome outcome = run_seed(scenario, seed, mutant);
    ++result.runs;
    result.steps += outcome.steps;
    if (outcome.failure.empty()) continue;
    result.red_seed = seed;
    result.red = std::move(outcome);
    break;
  }
  return result;
}

}  // namespace megamoe::sim
