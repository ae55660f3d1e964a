#include "sim/model/suite.hpp"

#include <chrono>
#include <cstdio>
#include <iterator>

#include "sim/model/search.hpp"
#include "sim/mutant.hpp"

namespace megamoe::sim::model {
namespace {

constexpr u64 kMaxStates = 6'000'000;  // of one routing

struct Case {
  const char* name;
  bool must_fail;
  unsigned patterns;  ///< bit per Pattern
  Parameters p;
  const char* expected = "deadlock";  ///< of a failure; see MutantInfo
  bool only_deep = false;             ///< takes long
};

constexpr unsigned bit(Pattern pattern) { return 1U << static_cast<unsigned>(pattern); }
constexpr unsigned kAll = (1U << kPatterns) - 1;
constexpr unsigned kExchange =
    bit(Pattern::all_to_0) | bit(Pattern::to_next) | bit(Pattern::spread) | bit(Pattern::random);
constexpr unsigned kBusy = bit(Pattern::all_to_0) | bit(Pattern::to_self);
constexpr unsigned kQuiet =
    bit(Pattern::idle) | bit(Pattern::alternating) | bit(Pattern::back_and_forth);

constexpr Case kTruth[] = {
    {"2 ranks, 5 calls", false, kAll, {.calls = 5, .claims_ahead = true}},
    {"2 ranks, 3 tokens, rings of 1 and 2",
     false,
     kAll,
     {.tokens = 3, .pool_slots = 1, .claims_ahead = true}},
    {"2 ranks, 3 tokens, pool of 2, act of 3, lag 2",
     false,
     kAll,
     {.tokens = 3, .act_slots = 3, .lag = 2}},
    {"2 ranks, 3 tokens, rings of 3, lag 1",
     false,
     kAll,
     {.calls = 2, .tokens = 3, .pool_slots = 3, .act_slots = 3}},
    {"2 ranks of 2 CTAs, one at a time",
     false,
     kAll,
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 1}},
    {"2 ranks of 2 CTAs",
     false,
     bit(Pattern::to_next),
     {.ctas = 2, .calls = 1, .tokens = 1, .resident = 2}},
    {"2 ranks of 2 CTAs, all routings",
     false,
     kAll,
     {.ctas = 2, .calls = 1, .tokens = 1, .resident = 2},
     "",
     true},
    {"1 rank of 2 CTAs, smallest pool",
     false,
     bit(Pattern::to_self),
     {.ranks = 1, .ctas = 2, .calls = 2, .tokens = 3, .pool_slots = 1, .resident = 2}},
    {"2 ranks of 2 CTAs, 2 calls",
     false,
     bit(Pattern::idle) | bit(Pattern::alternating),
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 2}},
    {"2 ranks of 2 CTAs, 3 calls, few rows",
     false,
     bit(Pattern::back_and_forth),
     {.ctas = 2, .calls = 3, .tokens = 1, .resident = 2, .claims_ahead = true}},
    {"3 ranks, 3 calls", false, kAll, {.ranks = 3, .calls = 3, .tokens = 1}},
    {"3 ranks of 2 CTAs, one at a time",
     false,
     kQuiet,
     {.ranks = 3, .ctas = 2, .calls = 2, .tokens = 1, .resident = 1}},
    {"2 virtual ranks, 2 CTAs each, 2 at a time",
     false,
     kExchange,
     {.ctas = 2, .calls = 1, .tokens = 1, .resident = 2, .virtual_ranks = true}},
    {"GPU's roles: 2 ranks, 3 calls", false, kAll, {.pipelined = true}},
    {"GPU's roles: 2 ranks, 3 tokens, smallest rings",
     false,
     kAll,
     {.calls = 2, .tokens = 3, .pool_slots = 1, .pipelined = true}},
    {"GPU's roles: 2 ranks, act of 3, lag 2",
     false,
     kAll,
     {.calls = 2, .tokens = 3, .act_slots = 3, .lag = 2, .pipelined = true}},
    {"GPU's roles: 2 ranks, groups of 2",
     false,
     kBusy,
     {.calls = 2, .tokens = 3, .act_slots = 4, .lag = 2, .group = 2, .pipelined = true}},
    {"GPU's roles: 1 rank of 2 CTAs, smallest rings",
     false,
     bit(Pattern::to_self),
     {.ranks = 1,
      .ctas = 2,
      .calls = 2,
      .tokens = 3,
      .pool_slots = 1,
      .resident = 2,
      .pipelined = true}},
    {"GPU's roles: 2 ranks of 2 CTAs, one at a time",
     false,
     kAll,
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 1, .pipelined = true}},
    {"GPU's roles: 3 ranks",
     false,
     bit(Pattern::to_next),
     {.ranks = 3, .calls = 1, .tokens = 1, .pipelined = true}},
    {"GPU's roles: 3 ranks, exchange",
     false,
     kExchange,
     {.ranks = 3, .calls = 1, .tokens = 1, .pipelined = true},
     "",
     true},
    {"GPU's roles: 3 ranks, 2 calls",
     false,
     kQuiet,
     {.ranks = 3, .calls = 2, .tokens = 1, .pipelined = true}},
};

constexpr Case kVariants[] = {
    {"GPU's roles: act slot not waited for",
     true,
     kBusy,
     {.ctas = 2,
      .calls = 1,
      .tokens = 3,
      .pool_slots = 3,
      .resident = 2,
      .pipelined = true,
      .variant = {.act_not_awaited = true}},
     "overwrites the act slot"},
    {"GPU's roles: lag of all act slots", true, kBusy, {.tokens = 3, .lag = 2, .pipelined = true}},
    {"GPU's roles: lag and group beyond the act slots",
     true,
     kBusy,
     {.tokens = 3, .act_slots = 3, .lag = 2, .group = 2, .pipelined = true}},
    {"GPU's roles: waits for the next tile too early",
     true,
     kBusy,
     {.tokens = 3, .pipelined = true, .variant = {.waits_for_next = true}}},
    {"GPU's roles: pool slot not waited for",
     true,
     kBusy,
     {.tokens = 3, .pipelined = true, .variant = {.pool_not_awaited = true}},
     "overwrites the pool slot"},
    {"one parity",
     true,
     kAll,
     {.variant = {.one_parity = true}},
     "counts of a later call|reads a list of call|deadlock"},
    {"zero counts not published",
     true,
     bit(Pattern::back_and_forth),
     {.ctas = 2,
      .calls = 3,
      .tokens = 1,
      .resident = 2,
      .variant = {.zero_counts_unpublished = true}},
     "counts of a later call"},
    {"counts before plain lists",
     true,
     kExchange,
     {.variant = {.plain_lists = true}},
     "reads a list of call"},
    {"pool slot not waited for",
     true,
     kBusy,
     {.tokens = 3, .variant = {.pool_not_awaited = true}},
     "overwrites the pool slot"},
    {"act slot not waited for",
     true,
     kBusy,
     {.ctas = 2,
      .calls = 1,
      .tokens = 3,
      .pool_slots = 3,
      .resident = 2,
      .variant = {.act_not_awaited = true}},
     "overwrites the act slot"},
    {"lag of all act slots", true, kBusy, {.tokens = 3, .lag = 2}},
    {"rows told with the next block's, pool of 1",
     true,
     kBusy,
     {.tokens = 3, .pool_slots = 1, .variant = {.rows_deferred = true}}},
    {"L1 told with the next tile",
     true,
     kBusy,
     {.tokens = 3, .pool_slots = 1, .variant = {.l1_deferred = true}}},
    {"sum before pulls", true, kExchange, {.variant = {.sum_first = true}}},
    {"sum after one pull", true, kBusy, {.variant = {.sum_after_one_pull = true}}},
    {"leaves without its contributions",
     true,
     kExchange,
     {.variant = {.leaves_without_arrived = true}},
     "pulls inputs of call|writes to rank|contributions than"},
    {"first CTA out leaves",
     true,
     kExchange,
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 2, .variant = {.first_out_leaves = true}},
     "pulls inputs of call|writes to rank|deadlock"},
    {"route by block index",
     true,
     kExchange,
     {.ctas = 2,
      .calls = 1,
      .tokens = 1,
      .resident = 1,
      .variant = {.route_by_block_index = true}}},
    {"virtual ranks dealt by block index",
     true,
     kExchange,
     {.ctas = 2,
      .calls = 1,
      .tokens = 1,
      .resident = 2,
      .virtual_ranks = true,
      .variant = {.static_deal = true}}},
    {"fewer slots than virtual ranks",
     true,
     kExchange,
     {.calls = 1, .tokens = 1, .resident = 1, .virtual_ranks = true}},
    {"next kernel starts before the call is left",
     true,
     kExchange,
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 2, .variant = {.next_kernel_early = true}},
     "pulls inputs of call|writes to rank|deadlock"},
};

/// One case with all its routings; true if it came out as it should.
bool run_case(const Case& c) {
  const auto started = std::chrono::steady_clock::now();
  u64 states = 0;
  int failed = 0;
  int routings = 0;
  int incomplete = 0;
  int wrong = 0;
  std::string first;
  for (int i = 0; i < kPatterns; ++i) {
    const auto pattern = static_cast<Pattern>(i);
    if ((c.patterns & bit(pattern)) == 0) continue;
    ++routings;
    const Found found = search(c.p, pattern, 7919, kMaxStates);
    states += found.states;
    incomplete += found.complete ? 0 : 1;
    if (found.failure.empty()) continue;
    wrong += is_expected(c.expected, found.failure) ? 0 : 1;
    if (failed++ == 0 || wrong == 1) first = std::string(name(pattern)) + ": " + found.failure;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const bool good = c.must_fail ? failed > 0 && wrong == 0 : failed == 0 && incomplete == 0;
  std::printf(
      "%-45s R%d C%d K%d pool %d act %d lag %d group %d calls %d: %d of %d routings fail, %llu "
      "states"
      ", %.1f s%s%s\n",
      c.name, c.p.ranks, c.p.ctas, c.p.tokens, c.p.pool_slots, c.p.act_slots, c.p.lag, c.p.group,
      c.p.calls, failed, routings, static_cast<unsigned long long>(states), seconds,
      incomplete > 0 && !c.must_fail ? " (not all states)" : "", mark(good));
  if (c.must_fail && wrong > 0) std::printf("    expected '%s', found:\n", c.expected);
  if (failed > 0) std::printf("    %s\n", first.c_str());
  std::fflush(stdout);
  return good;
}

}  // namespace

Tally run_suite(const Options& o) {
  Tally tally;
  const auto run = [&](const Case& c) {
    const bool wanted = o.name == "all" ? !c.only_deep || o.deep
                                        : std::string(c.name).find(o.name) != std::string::npos;
    if (wanted) tally.add(run_case(c));
  };
  std::printf("model: the protocol, all interleavings\n");
  for (const Case& c : kTruth) run(c);
  std::printf("model: variants that must fail\n");
  for (const Case& c : kVariants) run(c);
  return tally;
}

}  // namespace megamoe::sim::model
