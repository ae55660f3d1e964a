#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "tests/protocol/cpu_case.hpp"
#include "tests/support/error_of.hpp"

namespace megamoe {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class CpuFaults : public ::testing::Test {
 protected:
  /// One rank's call through its Layer, in this thread.
  void call_rank(int rank, const ForwardOptions& options, int tokens = 3) {
    std::vector<std::uint16_t> y(static_cast<std::size_t>(tokens * 256));
    case_.group().layer(rank).forward(y.data(), tokens, case_.routed(rank), nullptr, options);
  }
  /// How long a call takes at present.
  Clock::duration time_of_a_call() {
    case_.group().reset();
    const auto inputs = equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 1);
    case_.stage(inputs);
    const auto start = Clock::now();
    case_.run(inputs);
    return Clock::now() - start;
  }
  /// One call of both ranks, compared with the reference.
  void expect_good_call(std::uint64_t seed) {
    const auto inputs = equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, seed);
    case_.stage(inputs);
    case_.expect_close(case_.run(inputs), case_.reference(inputs), "good call");
  }

  /// The reference must read what staging makes of changed rows.
  void restage(ref::RandomInputs& inputs) {
    for (auto& rank : inputs.ranks) {
      rank =
          ref::stage_tokens(case_.problem(), rank.hidden_states, rank.topk_idx, rank.topk_weights);
    }
  }

  CpuCase case_{faults_problem()};
};

TEST_F(CpuFaults, ARankThatNeverCallsIsNamedWithinTheDeadline) {
  expect_good_call(1);
  ForwardOptions options;
  options.deadline = 500ms;
  const auto start = Clock::now();
  const std::string text = error_of([&] { call_rank(0, options); }, ErrorCode::fault);
  const auto took = Clock::now() - start;
  // On a machine that is busy with other things, a call without a fault is as much slower.
  EXPECT_LT(took, options.deadline + 1s + 20 * time_of_a_call());
  EXPECT_THAT(text, HasSubstr("rank 0, call 2"));
  EXPECT_THAT(text, HasSubstr("waiting for the counts of rank 1"));
  EXPECT_THAT(text, HasSubstr("rank 1 is at call 1, this rank at 2: it is late, or skipped one"));
}

TEST_F(CpuFaults, TheFaultSticksUntilResetAndThenCallsAreRightAgain) {
  ForwardOptions options;
  options.deadline = 50ms;
  error_of([&] { call_rank(1, options); }, ErrorCode::fault);
  // The peer sees the abort at entry, names who gave up, and does not wait for its own deadline.
  options.deadline = 60s;
  EXPECT_THAT(error_of([&] { call_rank(0, options); }, ErrorCode::fault),
              HasSubstr("rank 1 gave up waiting for the counts of rank 0"));
  EXPECT_THAT(error_of([&] { case_.group().layer(1).check(); }, ErrorCode::fault),
              HasSubstr("reset()"));
  for (int round = 0; round < 3; ++round) {
    case_.group().reset();
    EXPECT_EQ(case_.group().layer(0).check().epoch, 0U);
    for (std::uint64_t seed = 0; seed < 5; ++seed) expect_good_call(seed);
    options.deadline = 20ms;
    error_of([&] { call_rank(0, options); }, ErrorCode::fault);
  }
}

TEST_F(CpuFaults, ALateRankIsWaitedFor) {
  const auto inputs = equal_inputs(case_.problem(), 3, {ref::RoutingKind::uniform}, 4);
  case_.stage(inputs);
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    call_rank(1, {});
  });
  EXPECT_NO_THROW(call_rank(0, {}));
  late.join();
}

TEST_F(CpuFaults, AbortReleasesThePeersThatWait) {
  std::thread waiting([&] {
    ForwardOptions options;
    options.deadline = 60s;
    EXPECT_THAT(error_of([&] { call_rank(0, options); }, ErrorCode::fault),
                HasSubstr("rank 1 called abort()"));
  });
  std::this_thread::sleep_for(50ms);
  case_.group().layer(1).abort();
  waiting.join();
  case_.group().reset();
  expect_good_call(2);
}

TEST_F(CpuFaults, TwoCallsInFlightOnOneLayer) {
  std::thread waiting([&] {
    ForwardOptions options;
    options.deadline = 60s;
    error_of([&] { call_rank(0, options); }, ErrorCode::fault);
  });
  while (!case_.state(0).in_flight) std::this_thread::yield();
  EXPECT_THAT(error_of([&] { call_rank(0, {}); }),
              HasSubstr("rank 0 already has a call in flight"));
  EXPECT_THAT(error_of([&] { case_.group().reset(); }), HasSubstr("rank 0 has a call in flight"));
  case_.group().layer(1).abort();
  waiting.join();
}

TEST_F(CpuFaults, MoreCtasThanTheGridMeansTwoCallsInFlight) {
  // What the host cannot see: a start number that another launch has taken.
  case_.state(0).launch_header->start = protocol::tagged(protocol::kFirstEpoch, 40);
  ForwardOptions options;
  options.deadline = 100ms;
  EXPECT_THAT(error_of([&] { call_rank(0, options); }, ErrorCode::fault),
              HasSubstr("two calls are in flight"));
}

TEST_F(CpuFaults, ACountOfAnImpossibleEpochIsAFaultAtOnce) {
  LayerState& s = case_.state(0);
  const auto g = protocol::make_geometry(s.problem, KernelConfig{}, 0, 0);
  *s.memory.count(g, 0, 1, 0, 1) = protocol::tagged(77, 0);
  ForwardOptions options;
  options.deadline = 60s;
  EXPECT_THAT(error_of([&] { call_rank(0, options); }, ErrorCode::fault),
              HasSubstr("rank 1 published call 77 here"));
}

TEST_F(CpuFaults, BadExpertIdsCountAsNoneAndAreReported) {
  auto inputs = equal_inputs(case_.problem(), 6, {ref::RoutingKind::uniform}, 3);
  inputs.ranks[1].topk_idx[2 * 4 + 3] = 12;
  inputs.ranks[1].topk_idx[5 * 4 + 0] = std::int64_t{1} << 40U;
  inputs.ranks[0].topk_idx[0] = -2;
  case_.stage(inputs);
  ForwardOptions options;
  options.num_sms = 1;
  case_.expect_close(case_.run(inputs, options), case_.reference(inputs), "ids out of range");
  const auto bad = case_.group().layer(1).check().bad_id;
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->token, 2);
  EXPECT_EQ(bad->slot, 3);
  EXPECT_EQ(bad->value, 12);
  EXPECT_EQ(case_.group().layer(0).check().bad_id->value, -2);
}

TEST_F(CpuFaults, NanStaysInItsOwnTokensRow) {
  auto inputs = equal_inputs(case_.problem(), 6, {ref::RoutingKind::uniform}, 5);
  case_.stage(inputs);
  const auto clean = case_.run(inputs);
  inputs.ranks[0].hidden_states[2 * 256 + 17] = 0x7fc0;
  restage(inputs);
  case_.stage(inputs);
  const auto y = case_.run(inputs);
  case_.expect_close(y, case_.reference(inputs), "one NaN");
  for (std::size_t row = 0; row < 12; ++row) {
    bool any_nan = false;
    for (std::size_t i = 0; i < 256; ++i)
      any_nan = any_nan || std::isnan(bf16_to_float(y[row * 256 + i]));
    EXPECT_EQ(any_nan, row == 2) << row;
    if (row == 2) continue;
    EXPECT_TRUE(
        std::equal(y.begin() + row * 256, y.begin() + (row + 1) * 256, clean.begin() + row * 256))
        << row;
  }
}

TEST_F(CpuFaults, ZeroAndDenormalRowsStayFiniteAndHugeOnesAreAlone) {
  auto inputs = equal_inputs(case_.problem(), 6, {ref::RoutingKind::uniform}, 6);
  case_.stage(inputs);
  const auto clean = case_.run(inputs);
  for (std::size_t i = 0; i < 256; ++i) {
    inputs.ranks[0].hidden_states[i] = 0;
    inputs.ranks[0].hidden_states[256 + i] = float_to_bf16(1e-38F);
    // Its products are beyond FP32.
    inputs.ranks[1].hidden_states[i] = float_to_bf16(i % 2 == 0 ? 3e38F : -3e38F);
  }
  restage(inputs);
  case_.stage(inputs);
  const auto y = case_.run(inputs);
  EXPECT_EQ(std::count(y.begin(), y.end(), CpuCase::kUnwritten), 0);
  for (std::size_t i = 0; i < 2 * 256; ++i) ASSERT_TRUE(std::isfinite(bf16_to_float(y[i]))) << i;
  for (std::size_t row = 2; row < 12; ++row) {
    if (row == 6) continue;
    EXPECT_TRUE(
        std::equal(y.begin() + row * 256, y.begin() + (row + 1) * 256, clean.begin() + row * 256))
        << row;
  }
}

TEST_F(CpuFaults, ScalesOfZeroGiveZeros) {
  const auto inputs = equal_inputs(case_.problem(), 6, {ref::RoutingKind::uniform}, 7);
  case_.stage(inputs);
  const auto clean = case_.run(inputs);
  auto* scales = reinterpret_cast<float*>(case_.group().layer(1).inputs().x_scales);
  std::fill_n(scales + 2 * 2, 2, 0.0F);  // of its token 2, which is row 8 of y
  const auto y = case_.run(inputs);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (i / 256 == 8) {
      ASSERT_EQ(bf16_to_float(y[i]), 0.0F) << i;
    } else {
      ASSERT_EQ(y[i], clean[i]) << i;
    }
  }
  // Of one rank's weights: half of the experts give nothing.
  ExpertTensors zero = case_.routed(1);
  const std::vector<float> none(6 * 2);
  zero.w2_scales = reinterpret_cast<const std::byte*>(none.data());
  case_.stage(inputs);
  std::vector<std::uint16_t> half(y.size(), CpuCase::kUnwritten);
  const std::vector<RankCall> calls = {{half.data(), 6, &case_.routed(0)},
                                       {half.data() + 6 * 256, 6, &zero}};
  case_.group().forward(calls);
  EXPECT_EQ(std::count(half.begin(), half.end(), CpuCase::kUnwritten), 0);
  EXPECT_NE(half, clean);
  for (const std::uint16_t value : half) ASSERT_TRUE(std::isfinite(bf16_to_float(value)));
}

TEST_F(CpuFaults, BadCallsAreRefusedBeforeAnythingChanges) {
  ForwardOptions options;
  std::vector<std::uint16_t> y(64 * 256);
  Layer& layer = case_.group().layer(0);
  const ExpertTensors good = case_.routed(0);
  const auto forward = [&](const ExpertTensors& w) {
    layer.forward(y.data(), 1, w, nullptr, options);
  };
  EXPECT_THAT(error_of([&] { layer.forward(y.data(), -1, good); }),
              HasSubstr("num_tokens = -1 is negative"));
  EXPECT_THAT(error_of([&] { layer.forward(y.data(), 65, good); }),
              HasSubstr("num_tokens = 65 is more than max_tokens_per_rank = 64"));
  EXPECT_THAT(error_of([&] { layer.forward(nullptr, 1, good); }),
              HasSubstr("y is null with num_tokens = 1"));
  const auto changed = [&](auto change) {
    ExpertTensors w = good;
    change(w);
    return error_of([&] { forward(w); });
  };
  EXPECT_THAT(changed([](auto& w) { w.precision = Precision::bf16; }),
              HasSubstr("weights are bf16, the problem is fp8"));
  EXPECT_THAT(changed([](auto& w) { w.num_experts = 5; }),
              HasSubstr("num_experts = 5, this rank needs 6"));
  EXPECT_THAT(changed([](auto& w) { w.hidden = 128; }), HasSubstr("hidden = 128, the problem 256"));
  EXPECT_THAT(changed([](auto& w) { w.intermediate = 256; }),
              HasSubstr("intermediate = 256, the problem 128"));
  EXPECT_THAT(changed([](auto& w) { w.w1_order = W1Order::gate_then_up; }),
              HasSubstr("interleave_rows"));
  EXPECT_THAT(changed([](auto& w) { w.w1 = nullptr; }), HasSubstr("null w1 or w2"));
  EXPECT_THAT(changed([](auto& w) { w.w2_scales = nullptr; }),
              HasSubstr("null w1_scales or w2_scales"));
  EXPECT_THAT(changed([](auto& w) { w.w2_scales += 1; }), HasSubstr("w2_scales"));
  options.global_num_tokens = 129;
  EXPECT_THAT(error_of([&] { forward(good); }),
              HasSubstr("global_num_tokens = 129 is outside 0..128"));
  options = {};
  options.num_sms = std::numeric_limits<int>::max();
  EXPECT_THAT(error_of([&] { forward(good); }),
              HasSubstr("num_sms = 2147483647 is more than 1024"));
  options = {};
  KernelConfig config = config_for_block_rows(case_.problem(), 16);
  config.pull_rows = 5;
  options.config = &config;
  EXPECT_THAT(error_of([&] { forward(good); }),
              HasSubstr("pull_rows = 5 does not divide block_rows = 16"));
  config = config_for_block_rows(case_.problem(), 32);
  config.pull_rows = 32;
  EXPECT_THAT(error_of([&] { forward(good); }), HasSubstr("pull_rows = 32 is more than 16"));
  EXPECT_EQ(case_.group().layer(0).check().epoch, 0U);
  expect_good_call(9);
}

TEST_F(CpuFaults, DeadlinesOutsideTheirRangeAreRefused) {
  std::vector<std::uint16_t> y(256);
  Layer& layer = case_.group().layer(0);
  const auto refused = [&](const ForwardOptions& options) {
    return error_of([&] { layer.forward(y.data(), 1, case_.routed(0), nullptr, options); });
  };
  ForwardOptions options;
  options.deadline = 0ns;
  EXPECT_THAT(refused(options), HasSubstr("deadline = 0 ns"));
  options.deadline = kMaxDeadline + 1ns;
  EXPECT_THAT(refused(options),
              HasSubstr("deadline = 360000000000001 ns is more than 360000000000000 ns"));
  options = {};
  options.first_deadline = std::chrono::nanoseconds::max();
  EXPECT_THAT(refused(options), HasSubstr("first_deadline = 9223372036854775807 ns is more than"));
  EXPECT_THAT(error_of([&] { layer.set_deadlines(1s, kMaxDeadline + 1ns); }),
              HasSubstr("first_deadline = 360000000000001 ns"));
  EXPECT_THAT(error_of([&] { layer.set_deadlines(kMaxDeadline + 1ns, 1s); }),
              HasSubstr("deadline = 360000000000001 ns"));
  EXPECT_EQ(layer.check().epoch, 0U);
}

TEST(CpuGroup, RefusesWhatItCannotRun) {
  Problem p = faults_problem(3);
  EXPECT_THAT(error_of([&] { Group(p, nullptr); }), HasSubstr("memory is null"));
  EXPECT_THAT(error_of([&] { Group(p, SymmetricMemory::host(2)); }, ErrorCode::disagreement),
              HasSubstr("ranks = 3, the symmetric memory 2"));
  EXPECT_THAT(error_of([&] { SymmetricMemory::host(0); }), HasSubstr("ranks = 0"));
  p.experts = 10;
  EXPECT_THAT(error_of([&] { Group(p, SymmetricMemory::host(3)); }),
              HasSubstr("next multiple is 12"));
  CpuCase virtual_case(faults_problem(), true);
  std::vector<std::uint16_t> y(256);
  EXPECT_THAT(
      error_of([&] { virtual_case.group().layer(0).forward(y.data(), 1, virtual_case.routed(0)); }),
      HasSubstr("only Group::forward"));
  EXPECT_THAT(error_of([&] { (void)virtual_case.group().layer(2); }),
              HasSubstr("local_rank = 2 is outside 0..1"));
  EXPECT_THAT(error_of([&] { virtual_case.group().forward({}); }),
              HasSubstr("0 calls for 2 local ranks"));
}

TEST(CpuStage, RefusesSizesThatDoNotFit) {
  CpuCase c(faults_problem());
  Layer& layer = c.group().layer(0);
  const std::vector<std::uint16_t> rows(2 * 256);
  const std::vector<std::int64_t> ids(8);
  const std::vector<float> weights(8);
  const auto stage = [&](const std::uint16_t* x, std::size_t num_ids, int tokens) {
    return error_of([&] { layer.stage(x, std::span(ids).first(num_ids), weights, tokens); });
  };
  EXPECT_THAT(stage(rows.data(), 7, 2),
              HasSubstr("topk_idx has 7 and topk_weights 8 values; 2 tokens x top_k 4 need 8"));
  EXPECT_THAT(stage(rows.data(), 8, 65),
              HasSubstr("num_tokens = 65 is outside 0..max_tokens_per_rank = 64"));
  EXPECT_THAT(stage(nullptr, 8, 2), HasSubstr("hidden_states is null"));
}

TEST(CpuStage, Int32AndInt64IdsAreTheSameAndScalingAppliesToWeights) {
  CpuCase c(faults_problem());
  const auto inputs = equal_inputs(c.problem(), 4, {ref::RoutingKind::masked, 0.3}, 2);
  c.stage(inputs);
  const auto first = c.run(inputs);
  for (int r = 0; r < 2; ++r) {
    const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(r)];
    std::vector<float> half = tokens.topk_weights;
    for (float& w : half) w *= 0.5F;
    c.group().layer(r).stage(tokens.hidden_states.data(),
                             std::span<const std::int32_t>(tokens.topk_idx_32()), half, 4, 2.0F);
    EXPECT_EQ(c.group().layer(r).inputs().topk_idx[4 * 4], -1);
  }
  EXPECT_EQ(c.run(inputs), first);
}

}  // namespace
}  // namespace megamoe
