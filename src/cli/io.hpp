#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace megamoe::cli {

/// Where a verb writes: results to `out`, errors, notes and progress to `err`.
struct Io {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
};

/// How far a verb goes.
enum class Depth {
  validate,  ///< reads and checks its arguments, touches no file and prints only help
  execute,
};

using Arguments = std::vector<std::string>;

/// Exit statuses of the program.
inline constexpr int kDone = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kBadUsage = 2;

}  // namespace megamoe::cli
