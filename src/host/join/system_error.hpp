#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "megamoe/error.hpp"

namespace megamoe::join {

/// Throws the Error of a system call that has just failed: `what`, and errno in words.
[[noreturn]] inline void system_error(const std::string& what) {
  throw Error(ErrorCode::system, what + ": " + std::strerror(errno));
}

}  // namespace megamoe::join
