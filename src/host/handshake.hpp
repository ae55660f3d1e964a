#pragma once

#include <optional>

#include "megamoe/megamoe.hpp"

// What ranks settle before they do anything that needs all of them. All throw the same Error.

namespace megamoe {

/// Why this rank cannot go on, if it cannot.
using Trouble = std::optional<Error>;

/// Runs it; its Error as a value.
template <class Action>
Trouble trouble_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::system, error.what());
  }
  return {};
}

/// Collective: throws on every rank if any has trouble, naming the ranks and each one's reason; of
/// trouble that all ranks share, the reason alone.
void refuse_together(const AllGather& gather, const Trouble& own);

/// Collective: throws Error(disagreement) where lines "field = value" differ between ranks, naming
/// fields, values and ranks.
void agree_on(const AllGather& gather, const std::string& lines);

/// Collective: all ranks compare the problem, the layout and the library version, and hear whether
/// one of them has trouble.
void agree(SymmetricMemory& memory, const Problem& problem, const Trouble& own);

}  // namespace megamoe
