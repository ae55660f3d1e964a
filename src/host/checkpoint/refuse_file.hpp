#pragma once

#include <string>

#include "megamoe/error.hpp"

namespace megamoe {

/// Throws the Error of a file that cannot be used.
[[noreturn]] inline void refuse_file(const std::string& path, const std::string& detail) {
  throw Error(ErrorCode::invalid_file, "file " + path + ": " + detail);
}

}  // namespace megamoe
