#include "sim/prove.hpp"

#include <cstdio>
#include <iterator>

#include "sim/commands.hpp"
#include "sim/explore_suite.hpp"
#include "sim/model/suite.hpp"
#include "sim/report.hpp"
#include "sim/tally.hpp"

namespace megamoe::sim {
namespace {

constexpr u64 kTruthSeeds = 20'000;
constexpr u64 kMutantLimit = 4000;  // seeds until a mutant counts as not found
constexpr u64 kSpareSeeds = 500;

int print_counts(const Tally& t) {
  std::printf("counts: %d %d 0\n", t.as_it_should, t.not_so);
  return t.not_so == 0 ? 0 : 1;
}

}  // namespace

bool prove_mutant(const MutantInfo& m, u64 limit, bool should_be_red, std::FILE* out) {
  const Scenario* scenario = find_scenario(m.scenario);
  if (scenario == nullptr) {
    std::fprintf(out, "%s: no scenario %s\n", m.name, m.scenario);
    return false;
  }
  const Search s = search(*scenario, 0, limit, m.mutant);
  const bool right_kind = !should_be_red || is_expected(m.expected, s.red.failure);
  const bool good = s.is_red() == should_be_red && right_kind;
  std::fprintf(out, "%-27s %-20s %-5s %5llu seeds  %s%s\n", m.name, m.scenario,
               s.is_red() ? "red" : "green", static_cast<unsigned long long>(s.runs), m.rule,
               mark(good));
  if (s.is_red()) {
    if (!right_kind)
      std::fprintf(out, "    red for another reason: expected '%s', found:\n%s\n", m.expected,
                   s.red.failure.c_str());
    std::fprintf(out, "    %s\n    again: %s\n", first_line(s.red.failure).c_str(),
                 replay_command(*scenario, s.red_seed, m.mutant).c_str());
  }
  std::fflush(out);
  return good;
}

namespace {

/// Every mutant in its scenario, then the protocol itself in all of them.
Tally prove_mutants(u64 truth_seeds) {
  Tally tally;
  std::printf("mutants: each turns its scenario red\n");
  for (const MutantInfo& m : mutants()) tally.add(prove_mutant(m, kMutantLimit, true, stdout));
  std::printf("spare rules: without them the scenario stays green\n");
  for (const MutantInfo& m : spare_rules()) tally.add(prove_mutant(m, kSpareSeeds, false, stdout));
  tally.add(prove_mutant(
      {Mutant::whole_grid_barrier, name(Mutant::whole_grid_barrier),
       "a barrier of the whole grid ends where two slots are left free", "reserve_of_two", ""},
      kSpareSeeds, false, stdout));
  std::printf("the true protocol\n");
  u64 shares = 0;
  for (const Scenario& s : scenarios()) shares += s.share;
  u64 runs = 0;
  const auto truth = [&](const Scenario& s, u64 seeds) {
    const Search found = report_search(s, 0, seeds, Mutant::none);
    runs += found.runs;
    tally.add(!found.is_red());
  };
  for (const Scenario& s : scenarios()) truth(s, (truth_seeds * s.share + shares - 1) / shares);
  for (const Scenario& s : large_scenarios()) truth(s, 2);
  std::printf("the true protocol: %llu seeds; mutants: %zu\n",
              static_cast<unsigned long long>(runs), mutants().size());
  return tally;
}

}  // namespace

int command_mutants(const Options& o) {
  return print_counts(prove_mutants(o.seeds == 0 ? kTruthSeeds : o.seeds));
}
int command_explore(const Options& o) {
  const std::optional<Tally> tally = run_exploration_suite(o);
  return tally ? print_counts(*tally) : 2;
}
int command_model(const Options& o) { return print_counts(model::run_suite(o)); }

int command_prove(const Options& o) {
  const Stopwatch watch;
  Tally all = prove_mutants(o.seeds == 0 ? kTruthSeeds : o.seeds);
  Options every = o;
  every.name = "all";
  all.add(run_exploration_suite(every).value());
  all.add(model::run_suite(every));
  std::printf("%.0f s\n", watch.seconds());
  return print_counts(all);
}

}  // namespace megamoe::sim
