#pragma once

#include <string>

#include "megamoe/problem.hpp"

namespace megamoe {

/// A line per buffer of the symmetric and the local region: offset, bytes, name, shape.
std::string layout_map(const Problem& problem);

}  // namespace megamoe
