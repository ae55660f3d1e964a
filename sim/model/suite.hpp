#pragma once

#include "sim/commands.hpp"
#include "sim/tally.hpp"

namespace megamoe::sim::model {

/// Runs the model's cases and prints a line for each: the protocol must be without fault, each
/// variant must fail for at least one routing.
Tally run_suite(const Options& options);

}  // namespace megamoe::sim::model
