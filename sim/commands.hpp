#pragma once

#include <string>

#include "sim/scenario.hpp"
#include "sim/view.hpp"

namespace megamoe::sim {

struct Options {
  std::string name = "all";
  std::string mutant = "none";
  u64 first_seed = 0;
  u64 seeds = 0;       ///< 0: the command's own number
  bool deep = false;   ///< explorations that take longer as well
  bool trace = false;  ///< of a red exploration, step by step
};

// Each prints its findings and returns the exit status: 0 as it should be, 1 not, 2 unknown name.
int command_run(const Options& options);
int command_replay(const Options& options);
int command_list();
// These end with a line `counts: PASSED FAILED 0`.
int command_mutants(const Options& options);
int command_explore(const Options& options);
int command_model(const Options& options);
/// The three above.
int command_prove(const Options& options);

}  // namespace megamoe::sim
