#include "sim/explore_suite.hpp"

#include <cstdio>

#include "sim/report.hpp"

namespace megamoe::sim {
namespace {

constexpr Scenario tiny(u32 ranks, u32 ctas, u32 calls, Routing routing = Routing::to_next) {
  return {.name = "tiny",
          .ranks = ranks,
          .experts_per_rank = 1,
          .top_k = 1,
          .capacity = 1,
          .calls = calls,
          .ctas = ctas,
          .slots = ctas,
          .roles = Roles::threads,
          .routing = routing,
          .full_tokens = true};
}
constexpr Scenario tiny_rings() {
  Scenario s = tiny(1, 1, 1, Routing::to_self);
  s.experts_per_rank = s.capacity = 3;
  s.block_rows = s.pool_slots = 1;
  return s;
}
constexpr Scenario one_at_a_time() {
  Scenario s = tiny(2, 2, 1);
  s.slots = 1;
  return s;
}
constexpr Scenario with_warps(u32 calls = 1) {
  Scenario s = tiny(1, 1, calls, Routing::to_self);
  s.roles = Roles::warps;
  return s;
}
constexpr Scenario on_one_device() {
  Scenario s = tiny(2, 1, 1);
  s.virtual_ranks = true;
  s.slots = 2;
  return s;
}

constexpr Bounds preemptions(u32 most) { return {.preemptions = most}; }
constexpr Bounds deep(u32 most) { return {.preemptions = most, .max_runs = 10'000'000}; }
constexpr Mutant kTrue = Mutant::none;

const ExplorationCase kCases[] = {
    {"one_call", "2 ranks, 1 CTA, 1 call", tiny(2, 1, 1), preemptions(3)},
    {"two_calls", "2 ranks, 1 CTA, 2 calls", tiny(2, 1, 2)},
    {"alternating", "2 ranks, 1 CTA, 2 calls, the second idle",
     tiny(2, 1, 2, Routing::alternating)},
    {"idle", "2 ranks, 1 CTA, 3 calls without tokens", tiny(2, 1, 3, Routing::none)},
    {"two_ctas", "1 rank, 2 CTAs, 1 call", tiny(1, 2, 1, Routing::to_self)},
    {"virtual_ranks", "2 virtual ranks, 1 CTA each, 1 call", on_one_device()},
    {"warps", "1 rank, 1 CTA of GPU roles, 1 call", with_warps(), preemptions(1)},
    {"rings", "1 rank, 1 CTA, 3 blocks, smallest rings", tiny_rings()},
    {"all_to_0",
     "2 ranks, 1 CTA, 2 calls, all to rank 0",
     tiny(2, 1, 2, Routing::all_to_0),
     {},
     kTrue,
     true},
    {"two_ctas_calls", "1 rank, 2 CTAs, 2 calls", tiny(1, 2, 2, Routing::to_self), deep(1), kTrue,
     true},
    {"warps_calls", "1 rank, 1 CTA of GPU roles, 2 calls", with_warps(2), deep(1), kTrue, true},
    {"warps_2", "the GPU roles, one call, 2 preemptions", with_warps(), deep(2), kTrue, true},
    {"three_ranks", "3 ranks, 1 CTA, 1 call", tiny(3, 1, 1), deep(1), kTrue, true},
    {"one_slot", "2 ranks, 2 CTAs one at a time, 1 call", one_at_a_time(), deep(1), kTrue, true},
    {"arrived_unreleased",
     "arrived not released",
     tiny(2, 1, 1),
     {},
     Mutant::arrived_unreleased,
     false,
     "race on combine@"},
    {"rows_deferred",
     "rows told late, smallest rings",
     tiny_rings(),
     {},
     Mutant::rows_ready_deferred,
     false,
     "nobody can go on&polls rows_ready@"},
    {"one_parity",
     "one parity, 2 calls without tokens",
     tiny(2, 1, 2, Routing::none),
     {},
     Mutant::one_parity,
     false,
     "gave up waiting for counts"},
    {"first_out",
     "first of 2 CTAs leaves, 2 calls",
     tiny(1, 2, 2, Routing::to_self),
     {},
     Mutant::first_out_leaves,
     false,
     "wrong data&pulling|left the epoch at|race on|nobody can go on&polls count@"},
};

/// True if the case came out as it should.
bool run_case(const ExplorationCase& c, bool trace) {
  const Stopwatch watch;
  const Exploration e = explore(c.scenario, 1, c.mutant, c.bounds, trace ? stdout : nullptr);
  const bool red = !e.red.failure.empty();
  const bool good =
      c.mutant == Mutant::none ? !red && e.complete : is_expected(c.expected, e.red.failure);
  std::printf(
      "%-18s %-40s %-5s preemptions <= %u, stale reads of an agent <= %u: %llu schedules, %llu cut "
      "at known states, %llu states, %.1f s%s\n",
      c.name, c.about, red ? "red" : "green", c.bounds.preemptions, c.bounds.stale_per_agent,
      static_cast<unsigned long long>(e.runs), static_cast<unsigned long long>(e.cut),
      static_cast<unsigned long long>(e.states), watch.seconds(), mark(good));
  if (red) {
    if (!good) std::printf("    expected '%s', found:\n%s\n", c.expected, e.red.failure.c_str());
    std::printf("    %s\n    again: build/host/sim/megamoe_sim explore %s --trace\n",
                first_line(e.red.failure).c_str(), c.name);
  } else if (!e.complete) {
    std::printf("    not all schedules within %llu runs\n",
                static_cast<unsigned long long>(c.bounds.max_runs));
  }
  std::fflush(stdout);
  return good;
}

}  // namespace

std::span<const ExplorationCase> explorations() { return kCases; }

std::optional<Tally> run_exploration_suite(const Options& o) {
  Tally tally;
  bool any = false;
  std::printf("systematic exploration: all schedules within the bounds\n");
  for (const ExplorationCase& c : kCases) {
    const bool wanted = o.name == "all" ? !c.only_deep || o.deep : o.name == c.name;
    if (!wanted) continue;
    any = true;
    tally.add(run_case(c, o.trace));
  }
  if (!any) {
    std::fprintf(stderr, "megamoe_sim: no exploration '%s'; see megamoe_sim list\n",
                 o.name.c_str());
    return std::nullopt;
  }
  return tally;
}

}  // namespace megamoe::sim
