#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "tests/device/gpu_case.hpp"

// Many different calls of one group: bodies of tests for virtual ranks and for several GPUs.

namespace megamoe {

/// Counts from 0 to the capacity, none at all now and then; any routing.
inline ref::RandomInputs random_case(const Problem& p, std::mt19937& rng) {
  std::vector<int> tokens;
  const bool none = rng() % 40 == 0;
  const unsigned most = rng() % 3 == 0 ? static_cast<unsigned>(p.max_tokens_per_rank) : 12;
  for (int r = 0; r < p.ranks; ++r) {
    tokens.push_back(none || rng() % 4 == 0 ? 0 : static_cast<int>(rng() % (most + 1)));
  }
  const ref::Routing routing{static_cast<ref::RoutingKind>(rng() % 7), 0.3};
  return ref::random_inputs(p, tokens, routing, rng());
}

/// An id of one rank that is neither -1 nor an expert.
using BadId = CallReport::BadId;
inline bool equal(const BadId& a, const BadId& b) {
  return a.token == b.token && a.slot == b.slot && a.value == b.value;
}

/// Replaces some ids by values that are neither -1 nor an expert; says which, [ranks].
inline std::vector<std::vector<BadId>> spoil_ids(ref::RandomInputs& inputs, std::mt19937& rng) {
  std::vector<std::vector<BadId>> spoilt;
  const int top_k = inputs.problem.top_k;
  for (ref::RankTokens& rank : inputs.ranks) {
    std::vector<BadId>& of_rank = spoilt.emplace_back();
    int place = -1;
    for (std::int64_t& id : rank.topk_idx) {
      ++place;
      if (rng() % 50 != 0) continue;
      const auto wild = static_cast<std::int64_t>(static_cast<std::uint64_t>(rng()) << 32U | rng());
      id = rng() % 2 == 0 ? inputs.problem.experts + static_cast<std::int64_t>(rng() % 3)
                          : std::min<std::int64_t>(-2, wild < 0 ? wild : -wild);
      of_rank.push_back({place / top_k, place % top_k, id});
    }
  }
  return spoilt;
}

/// The ids out of range that a group's ranks must have reported by now: one of the first call that
/// had any.
class ExpectedBadIds {
 public:
  explicit ExpectedBadIds(int ranks) : first_(static_cast<std::size_t>(ranks)) {}

  /// Before a call, with its ids out of range.
  void add(const std::vector<std::vector<BadId>>& spoilt) {
    for (std::size_t r = 0; r < first_.size(); ++r) {
      all_ += spoilt[r].size();
      if (first_[r].empty()) first_[r] = spoilt[r];
    }
  }
  [[nodiscard]] std::size_t all() const { return all_; }
  /// After a call.
  void expect_reported(Group& group, const std::string& what) const {
    for (std::size_t r = 0; r < first_.size(); ++r) {
      const auto bad = group.layer(static_cast<int>(r)).check().bad_id;
      ASSERT_EQ(bad.has_value(), !first_[r].empty()) << what << ", rank " << r;
      if (!bad) continue;
      EXPECT_TRUE(std::any_of(first_[r].begin(), first_[r].end(),
                              [&](const BadId& id) { return equal(id, *bad); }))
          << what << ", rank " << r << " reports token " << bad->token << ", slot " << bad->slot
          << ", id " << bad->value;
    }
  }

 private:
  std::vector<std::vector<BadId>> first_;  ///< [ranks]
  std::size_t all_ = 0;
};

inline Problem random_calls_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 24,
          .top_k = 5,
          .hidden = 384,
          .intermediate = 256,
          .max_tokens_per_rank = 120};
}

/// `calls` random calls; two rows of each against the reference, all rows written.
inline void expect_random_calls(GpuCase& layer, int calls, unsigned seed) {
  const Problem& p = layer.problem();
  std::mt19937 rng(seed);
  long rows = 0;
  ExpectedBadIds bad_ids(p.ranks);
  double worst = 0;
  for (int call = 0; call < calls; ++call) {
    ref::RandomInputs inputs = random_case(p, rng);
    if (call % 10 == 9) bad_ids.add(spoil_ids(inputs, rng));
    const int blocks[] = {8, 16, 32, 64, 128};
    const KernelConfig config = config_for_block_rows(p, blocks[rng() % 5]);
    ForwardOptions options = with_config(rng() % 4 == 0 ? nullptr : &config);
    const int budgets[] = {0, 0, 132, 100, 32, p.ranks};
    options.num_sms = budgets[rng() % 6];
    const std::string what = fmt::format("call {} of seed {}", call, seed);
    layer.stage(inputs);
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = layer.run(options)) << what;
    bad_ids.expect_reported(layer.group(), what);
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(std::count(y.begin(), y.end(), 0xFFFF), 0) << what << ": values left unwritten";
    const std::size_t all = y.size() / static_cast<std::size_t>(p.hidden);
    if (all == 0) continue;
    const std::size_t step = std::max<std::size_t>(1, (all + 1) / 2);
    const ref::GpuCheck check = layer.check_rows(y, inputs, rng() % step, step);
    ASSERT_TRUE(check.ok()) << what << ": " << ref::text(check);
    worst = std::max(worst, check.difference.worst_row_relative_l2);
    rows += static_cast<long>(all);
  }
  const std::string text =
      fmt::format("{} ranks: {} calls, {} tokens, {} ids out of range, worst sampled row {:.1e}\n",
                  p.ranks, calls, rows, bad_ids.all(), worst);
  std::fputs(text.c_str(), stdout);
}

inline Problem small_calls_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 4,
          .top_k = 2,
          .hidden = 128,
          .intermediate = 128,
          .max_tokens_per_rank = 8};
}

/// `calls` calls of the same small shape, four inputs in turn, without waiting in between; every
/// 1,000 calls the results are compared with those of the first time.
inline void expect_many_small_calls(GpuCase& layer, int calls) {
  constexpr int kBatch = 1000;
  const Problem& p = layer.problem();
  std::vector<GpuInputs> inputs;
  std::vector<std::vector<std::uint16_t>> first(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::vector<int> counts;
    for (int r = 0; r < p.ranks; ++r) counts.push_back((r + static_cast<int>(i)) % 4);
    const auto random = ref::random_inputs(p, counts, {ref::RoutingKind::uniform}, 60 + i);
    inputs.push_back(layer.to_gpu(random));
    layer.stage(random);
    ASSERT_NO_THROW(first[i] = layer.run());
    layer.expect_close(first[i], random, "first call");
  }
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; done < calls; done += kBatch) {
    const auto which = static_cast<std::size_t>(done / kBatch % 4);
    layer.start_upload(inputs[which]);
    layer.start_stage();
    for (int i = 1; i < kBatch; ++i) layer.start_call_only();
    layer.start_call();
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = layer.finish_call()) << done << " calls";
    ASSERT_EQ(y, first[which]) << done << " calls";
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(layer.group().layer(0).check().epoch, static_cast<std::uint32_t>(calls + 4));
  EXPECT_LT(took.count(), 60.0);
  const std::string text = fmt::format("{} ranks: {} calls in {:.1f} s, {:.1f} us each\n", p.ranks,
                                       calls, took.count(), took.count() * 1e6 / calls);
  std::fputs(text.c_str(), stdout);
}

inline Problem repeat_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 48,
          .top_k = 6,
          .hidden = 640,
          .intermediate = 384,
          .max_tokens_per_rank = 200};
}

/// `calls` stagings and calls of one input without waiting in between: the last gives the bits of
/// one alone.
inline void expect_calls_in_flight(GpuCase& layer, int calls) {
  layer.stage(equal_inputs(layer.problem(), 60, {ref::RoutingKind::uniform}, 11));
  std::vector<std::uint16_t> first;
  ASSERT_NO_THROW(first = layer.run());
  for (int call = 0; call < calls; ++call) {
    layer.start_stage();
    layer.start_call();
  }
  EXPECT_EQ(layer.finish_call(), first);
  EXPECT_EQ(layer.group().layer(0).check().epoch, static_cast<std::uint32_t>(calls + 1));
}

/// The same inputs, at most 50 tokens, give the same bits with each of these capacities, the
/// least first.
template <class MakeCase>
void expect_any_capacity(const std::vector<int>& capacities, MakeCase make_case) {
  Problem least = repeat_problem(2);
  least.max_tokens_per_rank = capacities.front();
  const auto inputs = equal_inputs(least, 50, {ref::RoutingKind::uniform}, 12);
  for (const int block_rows : {16, 128}) {
    const KernelConfig config = config_for_block_rows(least, block_rows);
    std::vector<std::uint16_t> first;
    for (const int capacity : capacities) {
      Problem p = least;
      p.max_tokens_per_rank = capacity;
      const std::unique_ptr<GpuCase> layer = make_case(p);
      layer->stage(inputs);
      std::vector<std::uint16_t> y;
      ASSERT_NO_THROW(y = layer->run(with_config(&config)));
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << "capacity " << capacity << ", blocks of " << block_rows;
    }
  }
}

}  // namespace megamoe
