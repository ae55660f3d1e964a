#include "sim/commands.hpp"

#include <cstdio>
#include <vector>

#include "sim/explore_suite.hpp"
#include "sim/report.hpp"
#include "sim/runner.hpp"

namespace megamoe::sim {
namespace {

int unknown(const char* what, const std::string& name) {
  std::fprintf(stderr, "megamoe_sim: no %s '%s'; see megamoe_sim list\n", what, name.c_str());
  return 2;
}

}  // namespace

int command_run(const Options& o) {
  const std::optional<Mutant> mutant = find_mutant(o.mutant);
  if (!mutant) return unknown("mutant", o.mutant);
  std::vector<const Scenario*> chosen;
  if (o.name == "all") {
    for (const Scenario& s : scenarios()) chosen.push_back(&s);
  } else if (const Scenario* s = find_scenario(o.name)) {
    chosen.push_back(s);
  } else {
    return unknown("scenario", o.name);
  }
  bool green = true;
  for (const Scenario* s : chosen) {
    const Search found = report_search(*s, o.first_seed, o.seeds == 0 ? 100 : o.seeds, *mutant);
    green = green && !found.is_red();
  }
  return green ? 0 : 1;
}

int command_replay(const Options& o) {
  const std::optional<Mutant> mutant = find_mutant(o.mutant);
  if (!mutant) return unknown("mutant", o.mutant);
  const Scenario* scenario = find_scenario(o.name);
  if (scenario == nullptr) return unknown("scenario", o.name);
  const Outcome outcome = run_seed(*scenario, o.first_seed, *mutant, stdout);
  std::printf("%llu steps: %s\n", static_cast<unsigned long long>(outcome.steps),
              outcome.failure.empty() ? "green" : outcome.failure.c_str());
  return outcome.failure.empty() ? 0 : 1;
}

int command_list() {
  for (const std::span<const Scenario> all : {scenarios(), large_scenarios()}) {
    for (const Scenario& s : all) std::printf("scenario %-26s %s\n", s.name, s.about);
  }
  for (const ExplorationCase& c : explorations()) {
    std::printf("explore  %-26s %s%s\n", c.name, c.about, c.only_deep ? " (--deep)" : "");
  }
  for (const MutantInfo& m : mutants()) std::printf("mutant   %-26s %s\n", m.name, m.rule);
  for (const MutantInfo& m : spare_rules()) std::printf("spare    %-26s %s\n", m.name, m.rule);
  return 0;
}

}  // namespace megamoe::sim
