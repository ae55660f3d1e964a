#pragma once

#include <sstream>
#include <string>

#include "cli/verbs.hpp"

namespace megamoe::cli {

struct Result {
  int status;
  std::string out, err;
};

/// Runs a command line in this process.
inline Result megamoe(const Arguments& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  Io io{.out = out, .err = err};
  const int status = dispatch(arguments, io);
  return {status, out.str(), err.str()};
}

}  // namespace megamoe::cli
