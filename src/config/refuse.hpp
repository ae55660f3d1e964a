#pragma once

#include <string>

#include "megamoe/error.hpp"

namespace megamoe {

/// Throws the Error of a value that cannot be used; `reason` names it.
[[noreturn]] inline void refuse(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, reason);
}

}  // namespace megamoe
