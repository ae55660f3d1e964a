#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/gpu_case.hpp"

// The ladder: one program per stage of the kernel, each building on what the ones before have
// shown. A program takes --tokens-list, --ranks and --virtual, treats every token count as a case,
// prints a line for each, and ends by itself within a minute.

namespace megamoe::ladder {

struct Arguments {
  std::vector<int> tokens = {0, 8, 48, 192};  ///< per rank
  int ranks = 2;
  bool virtual_ranks = false;  ///< all on GPU 0; otherwise rank r on GPU r
  std::vector<int> blocks = {8, 16, 32, 64, 128};
};

/// What went wrong in a case, a line each. The first few are kept.
class Failures {
 public:
  void add(const std::string& line);
  /// Adds the line if `good` is false.
  void require(bool good, const std::string& line) {
    if (!good) add(line);
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

/// A case says what it found worth a word in `note`.
using Case = std::function<void(const Arguments& arguments, int tokens, Failures& failures,
                                std::string& note)>;

/// The main of a rung. Exit status: 0 all cases passed; 1 one failed, or the minute was over; 2 bad
/// arguments.
int climb(int argc, char** argv, const char* name, const char* what, const Case& run_case);

/// The layer of the rungs on the arguments' ranks.
Problem problem(const Arguments& arguments, int tokens);
std::unique_ptr<GpuCase> make_layer(const Arguments& arguments, int tokens);

}  // namespace megamoe::ladder
