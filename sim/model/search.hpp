#pragma once

#include <string>

#include "sim/model/steps.hpp"

namespace megamoe::sim::model {

struct Found {
  std::string failure;  ///< empty: none
  u64 states = 0;
  bool complete = true;  ///< all states were visited
};

/// Visits every state that can be reached, up to `max_states`, depth first. A state in which nobody
/// can step and somebody has not finished is a failure.
Found search(const Parameters& parameters, Pattern pattern, u64 seed, u64 max_states);

}  // namespace megamoe::sim::model
