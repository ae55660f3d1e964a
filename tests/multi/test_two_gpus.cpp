// One rank on each of two GPUs of this process.
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/captured_call.hpp"
#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class TwoGpus : public ::testing::Test {
 protected:
  explicit TwoGpus(const Problem& problem = repeat_problem(2)) : case_(problem, gpus_of(2)) {}

  void expect_reference(const ref::RandomInputs& inputs, const ForwardOptions& options,
                        const std::string& what) {
    case_.stage(inputs);
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = case_.run(options)) << what;
    case_.expect_close(y, inputs, what);
  }
  Layer& layer(int rank) { return case_.group().layer(rank); }

  GpuCase case_;
};

TEST_F(TwoGpus, TokenCountsAndBlocks) {
  for (const int tokens : {0, 1, 7, 8, 48, 130, 192}) {
    const auto inputs = equal_inputs(case_.problem(), tokens, {RoutingKind::uniform}, 1);
    for (const int block_rows : {8, 16, 32, 64, 128}) {
      const KernelConfig config = config_for_block_rows(case_.problem(), block_rows);
      expect_reference(inputs, with_config(&config),
                       fmt::format("{} tokens, blocks of {} rows", tokens, block_rows));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(TwoGpus, RoutingsAndUnequalRanks) {
  for (const ref::Routing routing :
       {ref::Routing{RoutingKind::one_rank}, ref::Routing{RoutingKind::one_expert},
        ref::Routing{RoutingKind::skewed}, ref::Routing{RoutingKind::masked, 0.3},
        ref::Routing{RoutingKind::none}}) {
    for (const std::vector<int>& counts :
         {std::vector<int>{130, 130}, std::vector<int>{0, 77}, std::vector<int>{199, 1}}) {
      const auto inputs = ref::random_inputs(case_.problem(), counts, routing, 5);
      for (const int block_rows : {16, 128}) {
        const KernelConfig config = config_for_block_rows(case_.problem(), block_rows);
        expect_reference(inputs, with_config(&config), ref::name(routing));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(TwoGpusShapes, HiddenIntermediateAndTopK) {
  struct Shape {
    int hidden, intermediate, top_k;
  };
  for (const Shape& shape :
       {Shape{128, 128, 1}, Shape{256, 128, 16}, Shape{768, 1408, 8}, Shape{3584, 640, 4}}) {
    Problem p = repeat_problem(2);
    p.top_k = shape.top_k;
    p.experts = 16;
    p.hidden = shape.hidden;
    p.intermediate = shape.intermediate;
    GpuCase layer(p, gpus_of(2));
    const auto inputs = equal_inputs(p, 90, {RoutingKind::uniform}, 6);
    for (const int block_rows : {8, 64, 128}) {
      const KernelConfig config = config_for_block_rows(p, block_rows);
      layer.stage(inputs);
      std::vector<std::uint16_t> y;
      ASSERT_NO_THROW(y = layer.run(with_config(&config))) << p.hidden;
      layer.expect_close(y, inputs, fmt::format("hidden {}, {} rows", p.hidden, block_rows));
    }
  }
}

TEST_F(TwoGpus, BitwiseEqualOverRepeatsSkewAndBudget) {
  const auto inputs = equal_inputs(case_.problem(), 100, {RoutingKind::uniform}, 7);
  case_.stage(inputs);
  for (const int block_rows : {16, 128}) {
    const KernelConfig config = config_for_block_rows(case_.problem(), block_rows);
    ForwardOptions options = with_config(&config);
    std::vector<std::uint16_t> first;
    ASSERT_NO_THROW(first = case_.run(options));
    case_.expect_close(first, inputs, "first");
    for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(case_.run(options), first) << repeat;
    for (const auto skew : {100ms, 1ms, 0ms, 5ms}) {
      for (const int late : {0, 1}) {
        case_.start_rank(1 - late, options);
        std::this_thread::sleep_for(skew);
        case_.start_rank(late, options);
        ASSERT_EQ(case_.finish_call(), first) << "rank " << late << " late";
      }
    }
    for (const int sms : {132, 100, 32, 1}) {
      options.num_sms = sms;
      ASSERT_EQ(case_.run(options), first) << sms << " SMs";
    }
  }
}

TEST_F(TwoGpus, RanksMayChooseDifferentBlocks) {
  const auto inputs = equal_inputs(case_.problem(), 90, {RoutingKind::uniform}, 8);
  case_.stage(inputs);
  const KernelConfig configs[2] = {config_for_block_rows(case_.problem(), 8),
                                   config_for_block_rows(case_.problem(), 128)};
  for (int r = 0; r < 2; ++r) case_.start_rank(r, with_config(&configs[r]));
  case_.expect_close(case_.finish_call(), inputs, "blocks of 8 and of 128");
}

TEST_F(TwoGpus, ManyCallsInFlightInOrder) { expect_calls_in_flight(case_, 300); }

TEST_F(TwoGpus, CapturedOnBothGpusAndReplayedWithChangedInputs) {
  const Problem& p = case_.problem();
  case_.stage(equal_inputs(p, 40, {RoutingKind::uniform}, 1));
  ASSERT_NO_THROW(case_.run());
  CapturedWork calls(case_, {0, 1}, [&] {
    for (int r = 0; r < 2; ++r) case_.start_rank(r);
  });
  for (std::uint64_t seed = 20; seed < 30; ++seed) {
    const auto inputs = equal_inputs(p, 40, {RoutingKind::masked, 0.2}, seed);
    case_.stage(inputs);
    std::vector<std::uint16_t> eager;
    ASSERT_NO_THROW(eager = case_.run());
    calls.replay();
    ASSERT_EQ(case_.finish_call(), eager) << seed;
  }
}

TEST_F(TwoGpus, ARankThatNeverCallsIsNamedWithinTheDeadline) {
  const auto inputs = equal_inputs(case_.problem(), 20, {RoutingKind::uniform}, 10);
  expect_reference(inputs, {}, "before");
  for (int round = 0; round < 3; ++round) {
    ForwardOptions options;
    options.deadline = 300ms;
    case_.state(0).first_call_deadline = 300ms;
    const auto start = std::chrono::steady_clock::now();
    case_.start_rank(0, options);
    layer(0).synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - start, options.deadline + 1s);
    EXPECT_THAT(error_of([&] { layer(0).check(); }, ErrorCode::fault),
                HasSubstr("waiting for the counts of rank 1"));
    // The other rank does not wait: it sees the abort at entry.
    case_.start_rank(1);
    layer(1).synchronize();
    EXPECT_THAT(error_of([&] { layer(1).check(); }, ErrorCode::fault),
                HasSubstr("rank 0 gave up waiting for the counts of rank 1"));
    case_.group().reset();
    expect_reference(inputs, {}, "after reset");
  }
}

TEST_F(TwoGpus, AbortReleasesTheRankThatWaits) {
  const auto inputs = equal_inputs(case_.problem(), 20, {RoutingKind::uniform}, 11);
  expect_reference(inputs, {}, "before");
  ForwardOptions options;
  options.deadline = 60s;
  case_.start_rank(0, options);
  std::this_thread::sleep_for(100ms);
  const auto start = std::chrono::steady_clock::now();
  layer(1).abort();
  layer(0).synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_THAT(error_of([&] { layer(0).check(); }, ErrorCode::fault),
              HasSubstr("rank 1 called abort()"));
  case_.group().reset();
  expect_reference(inputs, {}, "after reset");
}

}  // namespace
}  // namespace megamoe
