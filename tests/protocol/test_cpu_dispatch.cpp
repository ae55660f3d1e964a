// The dispatch-only mode of the CPU backend, against what the routing alone says.
#include <gtest/gtest.h>

#include "host/dispatch.hpp"
#include "layout/elements.hpp"
#include "protocol/words.hpp"
#include "tests/protocol/cpu_case.hpp"
#include "tests/support/planned_rows.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;

std::vector<int> counts_of(const ref::RandomInputs& inputs) {
  std::vector<int> counts;
  for (const ref::RankTokens& r : inputs.ranks) counts.push_back(r.num_tokens);
  return counts;
}

/// Appends token `token` of rank `src`, contribution `slot`, as a dispatched row.
void append_row(DispatchedRows& to, const Problem& p, const ref::RankTokens& from, int src,
                int token, int slot) {
  const auto t = static_cast<std::size_t>(token);
  const auto append = [&](std::vector<std::byte>& bytes, const std::vector<std::byte>& all,
                          std::size_t row) {
    const auto first = all.begin() + static_cast<long>(t * row);
    bytes.insert(bytes.end(), first, first + static_cast<long>(row));
  };
  append(to.x, from.x, activation_row_bytes(p.precision, p.hidden));
  append(to.x_scales, from.x_scales, scale_row_bytes(p.precision, p.hidden));
  to.meta.push_back(
      protocol::row_meta(static_cast<protocol::u32>(src),
                         static_cast<protocol::u32>(token * p.contributions() + slot)));
  to.weights.push_back(slot < p.top_k ? from.topk_weights[t * static_cast<std::size_t>(p.top_k) +
                                                          static_cast<std::size_t>(slot)]
                                      : 1.0F);
}

std::vector<DispatchedRows> expected_rows(const ref::RandomInputs& inputs) {
  const Problem& p = inputs.problem;
  std::vector<DispatchedRows> all(static_cast<std::size_t>(p.ranks));
  for (int dst = 0; dst < p.ranks; ++dst) {
    DispatchedRows& to = all[static_cast<std::size_t>(dst)];
    to.rows_of.resize(static_cast<std::size_t>(p.local_experts()));
    for (const PlannedRow& row : planned_rows(inputs, dst, 1)) {
      append_row(to, p, inputs.ranks[static_cast<std::size_t>(row.src)], row.src, row.token,
                 row.slot);
      ++to.rows_of[static_cast<std::size_t>(row.expert)];
    }
  }
  return all;
}

void expect_dispatch(CpuCase& layer, const ref::RandomInputs& inputs, const KernelConfig& config,
                     const std::string& what) {
  ForwardOptions options;
  options.config = &config;
  options.num_sms = 3;
  layer.stage(inputs);
  std::vector<DispatchedRows> got;
  ASSERT_NO_THROW(got = run_dispatch(layer.group(), counts_of(inputs), options)) << what;
  const std::vector<DispatchedRows> expected = expected_rows(inputs);
  for (std::size_t r = 0; r < got.size(); ++r) {
    EXPECT_EQ(got[r].rows_of, expected[r].rows_of) << what << ", rank " << r;
    EXPECT_EQ(got[r].meta, expected[r].meta) << what << ", rank " << r;
    EXPECT_EQ(got[r].weights, expected[r].weights) << what << ", rank " << r;
    EXPECT_TRUE(got[r] == expected[r]) << what << ", rank " << r;
  }
}

Problem small_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 24,
          .top_k = 5,
          .hidden = 256,
          .intermediate = 128,
          .max_tokens_per_rank = 200};
}

TEST(CpuDispatch, EqualsTheRouting) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool one_launch : {false, true}) {
      CpuCase layer(small_problem(ranks), one_launch);
      for (const int block_rows : {8, 16, 32, 64, 128}) {
        const KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
        const std::string what = fmt::format("{} ranks, blocks of {}", ranks, block_rows);
        for (const int tokens : {0, 8, 48}) {
          expect_dispatch(layer,
                          equal_inputs(layer.problem(), tokens, {RoutingKind::masked, 0.2}, 3),
                          config, what);
        }
        expect_dispatch(layer, equal_inputs(layer.problem(), 190, {RoutingKind::one_rank}, 4),
                        config, what + ", all to one rank");
        std::vector<int> counts(static_cast<std::size_t>(ranks), 0);
        counts.back() = 33;
        expect_dispatch(layer,
                        ref::random_inputs(layer.problem(), counts, {RoutingKind::uniform}, 5),
                        config, what + ", empty sources");
      }
    }
  }
}

TEST(CpuDispatch, TakesTurnsWithCallsAndFitsTinyRings) {
  Problem p = small_problem(2);
  p.shared_experts = 2;
  CpuCase layer(p);
  layer.set_delays(9);
  KernelConfig config = config_for_block_rows(p, 16);
  config.pool_slots = 1;
  config.act_slots = 2;
  config.group_blocks = config.lag_blocks = 1;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto inputs = equal_inputs(p, 20, {RoutingKind::uniform}, 30 + seed);
    expect_dispatch(layer, inputs, config, "tiny rings");
    const auto y = layer.run(inputs);
    layer.expect_close(y, layer.reference(inputs), "call after a dispatch");
  }
  EXPECT_EQ(layer.group().layer(0).check().epoch, 6U);
}

TEST(CpuDispatch, RefusesWhatItCannotRun) {
  CpuCase layer(small_problem(2));
  KernelConfig config = config_for_block_rows(layer.problem(), 16);
  config.num_waves = 2;
  ForwardOptions options;
  options.config = &config;
  EXPECT_THROW(run_dispatch(layer.group(), std::vector<int>{1, 1}, options), Error);
  EXPECT_THROW(run_dispatch(layer.group(), std::vector<int>{1}), Error);
  EXPECT_THROW(run_dispatch(layer.group(), std::vector<int>{1, 201}), Error);
  EXPECT_EQ(layer.group().layer(0).check().epoch, 0U);
}

}  // namespace
}  // namespace megamoe
