#pragma once

#include "megamoe/megamoe.hpp"

namespace megamoe {

/// Collective: all ranks compare the problem, the layout and the library version. Throws the same
/// Error on every rank, naming fields, ranks and values, when any differs.
void agree(SymmetricMemory& memory, const Problem& problem);

}  // namespace megamoe
