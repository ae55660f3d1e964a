#include "sim/report.hpp"

#include <cstdio>

namespace megamoe::sim {

std::string replay_command(const Scenario& scenario, u64 seed, Mutant mutant) {
  std::string command = std::string("build/host/sim/megamoe_sim replay ") + scenario.name +
                        " --seed " + std::to_string(seed);
  if (mutant != Mutant::none) command += std::string(" --mutant ") + name(mutant);
  return command;
}

Search report_search(const Scenario& scenario, u64 first_seed, u64 seeds, Mutant mutant) {
  const Stopwatch watch;
  Search found = search(scenario, first_seed, seeds, mutant);
  std::printf("%-26s %-5s %6llu seeds %10llu steps %6.1f s\n", scenario.name,
              found.is_red() ? "RED" : "green", static_cast<unsigned long long>(found.runs),
              static_cast<unsigned long long>(found.steps), watch.seconds());
  if (found.is_red()) {
    std::printf("%s\n%sagain: %s\n", found.red.failure.c_str(), found.red.trace.c_str(),
                replay_command(scenario, found.red_seed, mutant).c_str());
  }
  std::fflush(stdout);
  return found;
}

}  // namespace megamoe::sim
