#pragma once

#include <cstdint>
#include <vector>

#include "ref/random_case.hpp"

namespace megamoe {

/// The inputs of one call: the same number of tokens on every rank.
inline ref::RandomInputs equal_inputs(const Problem& p, int tokens, const ref::Routing& routing,
                                      std::uint64_t seed) {
  return ref::random_inputs(p, std::vector<int>(static_cast<std::size_t>(p.ranks), tokens), routing,
                            seed);
}

/// What the tests of faults call, on the CPU and on GPUs.
inline Problem faults_problem(int ranks = 2) {
  return {.ranks = ranks,
          .experts = 12,
          .top_k = 4,
          .hidden = 256,
          .intermediate = 128,
          .max_tokens_per_rank = 64};
}

}  // namespace megamoe
