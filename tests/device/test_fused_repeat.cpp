// The fused kernel against itself: what must be bitwise equal.
#include <random>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "tests/device/captured_call.hpp"
#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;

TEST(FusedRepeat, BitwiseEqualOverRepeats) {
  struct Case {
    int ranks, tokens, block_rows;
    ref::Routing routing;
  };
  for (const Case& c :
       {Case{1, 8, 8, {RoutingKind::uniform}}, Case{2, 48, 16, {RoutingKind::uniform}},
        Case{3, 20, 8, {RoutingKind::one_rank}}, Case{4, 100, 32, {RoutingKind::masked, 0.5}},
        Case{8, 50, 64, {RoutingKind::skewed}}, Case{8, 192, 128, {RoutingKind::balanced}}}) {
    GpuCase layer(repeat_problem(c.ranks));
    const KernelConfig config = config_for_block_rows(layer.problem(), c.block_rows);
    const auto inputs = equal_inputs(layer.problem(), c.tokens, c.routing, 10);
    layer.stage(inputs);
    std::vector<std::uint16_t> first;
    ASSERT_NO_THROW(first = layer.run(with_config(&config)));
    layer.expect_close(first, inputs, "first run");
    for (int repeat = 1; repeat <= 100; ++repeat) {
      ASSERT_EQ(layer.run(with_config(&config)), first)
          << "repeat " << repeat << " on " << c.ranks << " ranks";
    }
  }
}

TEST(FusedRepeat, ManyCallsInAStreamWithoutWaiting) {
  GpuCase layer(repeat_problem(4));
  expect_calls_in_flight(layer, 200);
}

TEST(FusedRepeat, AnyCapacity) {
  expect_any_capacity({50, 200, 400, 1600},
                      [](const Problem& p) { return std::make_unique<GpuCase>(p); });
}

TEST(FusedRepeat, AnySmBudget) {
  for (const int ranks : {1, 2, 4, 8}) {
    GpuCase layer(repeat_problem(ranks));
    const auto inputs = equal_inputs(layer.problem(), 70, {RoutingKind::uniform}, 13);
    layer.stage(inputs);
    for (const int block_rows : {8, 64, 128}) {
      const KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
      ForwardOptions options = with_config(&config);
      options.deadline = std::chrono::seconds(10);
      std::vector<std::uint16_t> first;
      ASSERT_NO_THROW(first = layer.run(options));
      layer.expect_close(first, inputs, "all SMs");
      for (const int sms : {132, 100, 32, ranks + 1, ranks}) {
        options.num_sms = sms;
        ASSERT_EQ(layer.run(options), first) << sms << " SMs, " << ranks << " ranks";
      }
      options.num_sms = 0;
      options.reserved_sms = 40;
      EXPECT_EQ(layer.run(options), first) << "40 SMs reserved";
    }
  }
}

TEST(FusedRepeat, GraphsWithDifferentCountsReplayWithChangedInputs) {
  for (const int ranks : {1, 2, 4}) {
    const Problem p = repeat_problem(ranks);
    GpuCase layer(p);
    const std::vector<int> counts = {5, 40, 180};
    std::vector<std::unique_ptr<CapturedCall>> graphs;
    for (const int tokens : counts) {
      layer.stage(equal_inputs(p, tokens, {RoutingKind::uniform}, 1));
      ASSERT_NO_THROW(layer.run());
      graphs.push_back(
          std::make_unique<CapturedCall>(layer, ForwardOptions{}, CapturedCall::Y::cleared));
    }
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const std::size_t which = (seed * 2) % counts.size();
      const auto inputs = equal_inputs(p, counts[which], {RoutingKind::masked, 0.2}, 30 + seed);
      layer.stage(inputs);
      std::vector<std::uint16_t> eager;
      ASSERT_NO_THROW(eager = layer.run());
      layer.upload(equal_inputs(p, counts[which], {RoutingKind::one_rank}, 90 + seed));
      graphs[which]->replay();  // other inputs in between
      layer.upload(inputs);
      graphs[which]->replay();
      ASSERT_EQ(layer.finish_call(), eager) << ranks << " ranks, seed " << seed;
      graphs[which]->replay();
      ASSERT_EQ(layer.finish_call(), eager) << "again";
    }
  }
}

TEST(FusedRepeat, ManyChangingCallsOnTwoInterleavedGroups) {
  std::mt19937 rng(14);
  GpuCase a(repeat_problem(3));
  GpuCase b(repeat_problem(8));
  for (int call = 0; call < 120; ++call) {
    GpuCase& layer = call % 2 == 0 ? a : b;
    const Problem& p = layer.problem();
    std::vector<int> tokens;
    for (int r = 0; r < p.ranks; ++r)
      tokens.push_back(rng() % 4 == 0 ? 0 : static_cast<int>(rng() % 200));
    const ref::Routing routing{static_cast<RoutingKind>(rng() % 7), 0.4};
    const auto inputs = ref::random_inputs(p, tokens, routing, rng());
    const int blocks[] = {8, 16, 32, 64, 128};
    const KernelConfig config = config_for_block_rows(p, blocks[rng() % 5]);
    layer.stage(inputs);
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = layer.run(with_config(&config))) << "call " << call;
    if (call % 6 < 2) layer.expect_close(y, inputs, fmt::format("call {}", call));
  }
}

TEST(FusedRepeat, NanStaysInItsOwnTokensRow) {
  const Problem p = repeat_problem(2);
  GpuCase layer(p);
  auto inputs = equal_inputs(p, 30, {RoutingKind::uniform}, 15);
  const auto hidden = static_cast<std::size_t>(p.hidden);
  for (const int block_rows : {8, 128}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    std::vector<std::uint16_t> clean, y;
    layer.stage(inputs);
    ASSERT_NO_THROW(clean = layer.run(with_config(&config)));
    auto spoilt = inputs;
    spoilt.ranks[1].hidden_states[3 * hidden + 17] = 0x7fc0;
    layer.stage(spoilt);
    ASSERT_NO_THROW(y = layer.run(with_config(&config)));
    const auto same = [&](std::size_t row) {
      const auto first = static_cast<long>(row * hidden),
                 last = static_cast<long>(first + p.hidden);
      return std::equal(y.begin() + first, y.begin() + last, clean.begin() + first);
    };
    for (std::size_t row = 0; row < 60; ++row) EXPECT_EQ(same(row), row != 33) << row;
    EXPECT_TRUE(std::isnan(bf16_to_float(y[33 * hidden])));
  }
}

}  // namespace
}  // namespace megamoe
