#include <cstdio>
#include <iterator>

#include "sim/commands.hpp"
#include "sim/explore.hpp"
#include "sim/model/suite.hpp"
#include "sim/report.hpp"

namespace megamoe::sim {
namespace {

constexpr u64 kTruthSeeds = 20'000;
constexpr u64 kMutantLimit = 4000;  // seeds until a mutant counts as not found
constexpr u64 kSpareSeeds = 500;

struct Tally {
  int as_it_should = 0;
  int not_so = 0;
  void add(bool good) { ++(good ? as_it_should : not_so); }
  void add(const Tally& other) {
    as_it_should += other.as_it_should;
    not_so += other.not_so;
  }
};

int print_counts(const Tally& t) {
  std::printf("counts: %d %d 0\n", t.as_it_should, t.not_so);
  return t.not_so == 0 ? 0 : 1;
}

const char* mark(bool good) { return good ? "" : "   <-- NOT AS IT SHOULD BE"; }

/// Looks for a seed that turns the mutant's scenario red; true if the outcome is as it should be.
bool run_mutant(const MutantInfo& m, u64 limit, bool should_be_red) {
  const Scenario* scenario = find_scenario(m.scenario);
  if (scenario == nullptr) {
    std::printf("%s: no scenario %s\n", m.name, m.scenario);
    return false;
  }
  const Search s = search(*scenario, 0, limit, m.mutant);
  const bool good = s.is_red() == should_be_red;
  std::printf("%-27s %-20s %-5s %5llu seeds  %s%s\n", m.name, m.scenario,
              s.is_red() ? "red" : "green", static_cast<unsigned long long>(s.runs), m.rule,
              mark(good));
  if (s.is_red()) std::printf("    %s\n", first_line(s.red.failure).c_str());
  std::fflush(stdout);
  return good;
}

/// Every mutant in its scenario, then the protocol itself in all of them.
Tally prove_mutants(u64 truth_seeds) {
  Tally tally;
  std::printf("mutants: each turns its scenario red\n");
  for (const MutantInfo& m : mutants()) tally.add(run_mutant(m, kMutantLimit, true));
  std::printf("spare rules: without them the scenario stays green\n");
  for (const MutantInfo& m : spare_rules()) tally.add(run_mutant(m, kSpareSeeds, false));
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

/// What is explored systematically. Mutants show that the exploration would find a fault.
struct ExplorationCase {
  const char* name;
  Scenario scenario;
  Mutant mutant;
  Bounds bounds;
};

constexpr Scenario tiny() {
  return {.name = "tiny",
          .experts_per_rank = 1,
          .top_k = 1,
          .capacity = 1,
          .calls = 1,
          .roles = Roles::threads,
          .routing = Routing::to_next,
          .full_tokens = true};
}
constexpr Scenario tiny_with(u32 calls, u32 ctas) {
  Scenario s = tiny();
  s.calls = calls;
  s.ctas = s.slots = ctas;
  return s;
}
constexpr Scenario tiny_rings() {
  Scenario s = tiny();
  s.ranks = 1;
  s.experts_per_rank = 3;
  s.capacity = 3;
  s.block_rows = s.pool_slots = 1;
  s.routing = Routing::to_self;
  return s;
}

const ExplorationCase kExplorations[] = {
    {"2 ranks, 1 CTA, 1 call", tiny_with(1, 1), Mutant::none, {.preemptions = 3}},
    {"2 ranks, 1 CTA, 2 calls", tiny_with(2, 1), Mutant::none, {.preemptions = 2}},
    {"2 ranks, 2 CTAs, 1 call", tiny_with(1, 2), Mutant::none, {.preemptions = 2}},
    {"1 rank, 1 CTA, 3 blocks, smallest rings", tiny_rings(), Mutant::none, {.preemptions = 2}},
    {"the same, arrived not released", tiny_with(1, 1), Mutant::arrived_unreleased, {}},
    {"the same, rows told late, smallest rings", tiny_rings(), Mutant::rows_ready_deferred, {}},
    {"the same, first of 2 CTAs leaves, 2 calls", tiny_with(2, 2), Mutant::first_out_leaves, {}},
};

Tally run_exploration_suite() {
  Tally tally;
  std::printf("systematic exploration: all schedules within the bounds\n");
  for (const ExplorationCase& c : kExplorations) {
    const Stopwatch watch;
    const Exploration e = explore(c.scenario, 1, c.mutant, c.bounds);
    const bool red = !e.red.failure.empty();
    const bool good = c.mutant == Mutant::none ? !red && e.complete : red;
    std::printf(
        "%-42s %-5s preemptions %u, stale reads %u: %llu schedules, %llu cut at known "
        "states, %llu states, %.1f s%s\n",
        c.name, red ? "red" : "green", c.bounds.preemptions, c.bounds.stale_per_agent,
        static_cast<unsigned long long>(e.runs), static_cast<unsigned long long>(e.cut),
        static_cast<unsigned long long>(e.states), watch.seconds(), mark(good));
    if (red) std::printf("    %s\n", first_line(e.red.failure).c_str());
    std::fflush(stdout);
    tally.add(good);
  }
  return tally;
}

Tally run_model_suite() {
  const model::SuiteCounts counts = model::run_suite();
  return {counts.as_it_should, counts.not_so};
}

}  // namespace

int command_mutants(const Options& o) {
  return print_counts(prove_mutants(o.seeds == 0 ? kTruthSeeds : o.seeds));
}
int command_explore() { return print_counts(run_exploration_suite()); }
int command_model() { return print_counts(run_model_suite()); }

int command_prove(const Options& o) {
  const Stopwatch watch;
  Tally all = prove_mutants(o.seeds == 0 ? kTruthSeeds : o.seeds);
  all.add(run_exploration_suite());
  all.add(run_model_suite());
  std::printf("%.0f s\n", watch.seconds());
  return print_counts(all);
}

}  // namespace megamoe::sim
