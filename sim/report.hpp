#pragma once

#include <chrono>
#include <string>

#include "sim/runner.hpp"

namespace megamoe::sim {

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The command that repeats a run and prints every step.
std::string replay_command(const Scenario& scenario, u64 seed, Mutant mutant);
/// Searches and prints a line, with the failure and the last steps of a red run.
Search report_search(const Scenario& scenario, u64 first_seed, u64 seeds, Mutant mutant);

/// The first line of a failure.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace megamoe::sim
