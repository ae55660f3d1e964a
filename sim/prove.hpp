#pragma once

#include <cstdio>

#include "sim/mutant.hpp"

namespace megamoe::sim {

/// Looks for a seed below `limit` that turns the mutant's scenario red, and prints what came out.
/// True if the outcome is as it should be: red, with the expected words in the first failure, or
/// green.
bool prove_mutant(const MutantInfo& mutant, u64 limit, bool should_be_red, std::FILE* out);

}  // namespace megamoe::sim
