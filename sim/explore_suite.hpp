#pragma once

#include <optional>
#include <span>

#include "sim/commands.hpp"
#include "sim/explore.hpp"
#include "sim/tally.hpp"

namespace megamoe::sim {

/// What is explored systematically. Those with a mutant must fail: they show that the exploration
/// would find a fault.
struct ExplorationCase {
  const char* name;
  const char* about;
  Scenario scenario;
  Bounds bounds = {};
  Mutant mutant = Mutant::none;
  bool only_deep = false;     ///< takes long
  const char* expected = "";  ///< of a mutant: what its failure must say; see MutantInfo
};
std::span<const ExplorationCase> explorations();

/// Follows the case named in the options, or all; prints counts and bounds, a line for each.
/// Nothing if there is no such case.
std::optional<Tally> run_exploration_suite(const Options& options);

}  // namespace megamoe::sim
