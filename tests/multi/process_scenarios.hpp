#pragma once

#include <string>

#include "megamoe/symmetric_memory.hpp"

namespace megamoe {

/// Tells the parent that this process has come to a point.
void tell_ready();

/// What one of two processes does in the scenario of this name: "right", or what went wrong, or for
/// scenarios that end with a fault its words.
std::string run_scenario(const std::string& name, const JoinOptions& join);

}  // namespace megamoe
