#include "sim/model/suite.hpp"

#include <chrono>
#include <cstdio>
#include <iterator>

#include "sim/model/search.hpp"

namespace megamoe::sim::model {
namespace {

constexpr u64 kMaxStates = 6'000'000;  // of one routing

struct Case {
  const char* name;
  bool must_fail;
  unsigned patterns;  ///< bit per Pattern
  Parameters p;
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
    {"2 ranks of 2 CTAs", false, kAll, {.ctas = 2, .calls = 1, .tokens = 1, .resident = 2}},
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
};

constexpr Case kVariants[] = {
    {"one parity", true, kAll, {.variant = {.one_parity = true}}},
    {"zero counts not published",
     true,
     bit(Pattern::back_and_forth),
     {.ctas = 2,
      .calls = 3,
      .tokens = 1,
      .resident = 2,
      .variant = {.zero_counts_unpublished = true}}},
    {"counts before plain lists", true, kExchange, {.variant = {.plain_lists = true}}},
    {"pool slot not waited for", true, kBusy, {.tokens = 3, .variant = {.pool_not_awaited = true}}},
    {"act slot not waited for",
     true,
     kBusy,
     {.ctas = 2,
      .calls = 1,
      .tokens = 3,
      .pool_slots = 3,
      .resident = 2,
      .variant = {.act_not_awaited = true}}},
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
     {.variant = {.leaves_without_arrived = true}}},
    {"first CTA out leaves",
     true,
     kExchange,
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 2, .variant = {.first_out_leaves = true}}},
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
     {.ctas = 2, .calls = 2, .tokens = 1, .resident = 2, .variant = {.next_kernel_early = true}}},
};

/// One case with all its routings; true if it came out as it should.
bool run_case(const Case& c) {
  const auto started = std::chrono::steady_clock::now();
  u64 states = 0;
  int failed = 0;
  int routings = 0;
  int incomplete = 0;
  std::string first;
  for (int i = 0; i < kPatterns; ++i) {
    const auto pattern = static_cast<Pattern>(i);
    if ((c.patterns & bit(pattern)) == 0) continue;
    ++routings;
    const Found found = search(c.p, pattern, 7919, kMaxStates);
    states += found.states;
    incomplete += found.complete ? 0 : 1;
    if (found.failure.empty()) continue;
    if (failed++ == 0) first = std::string(name(pattern)) + ": " + found.failure;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const bool good = c.must_fail ? failed > 0 : failed == 0 && incomplete == 0;
  std::printf(
      "%-45s R%d C%d K%d pool %d act %d lag %d calls %d: %d of %d routings fail, %llu states"
      ", %.1f s%s%s\n",
      c.name, c.p.ranks, c.p.ctas, c.p.tokens, c.p.pool_slots, c.p.act_slots, c.p.lag, c.p.calls,
      failed, routings, static_cast<unsigned long long>(states), seconds,
      incomplete > 0 && !c.must_fail ? " (not all states)" : "", mark(good));
  if (failed > 0) std::printf("    %s\n", first.c_str());
  std::fflush(stdout);
  return good;
}

}  // namespace

Tally run_suite() {
  Tally tally;
  std::printf("model: the protocol, all interleavings\n");
  for (const Case& c : kTruth) tally.add(run_case(c));
  std::printf("model: variants that must fail\n");
  for (const Case& c : kVariants) tally.add(run_case(c));
  return tally;
}

}  // namespace megamoe::sim::model
