// Calls on the CPU when the system gives no more threads or memory.
#include <new>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/protocol/cpu_case.hpp"
#include "tests/protocol/failing_allocations.hpp"
#include "tests/support/error_of.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

ForwardOptions four_ctas() {
  ForwardOptions options;
  options.num_sms = 4;
  options.deadline = 60s;
  return options;
}

class CpuLimits : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { case_.stage(inputs_); }
  void TearDown() override { (void)an_allocation_failed(); }

  void expect_good_call() {
    case_.expect_close(case_.run(inputs_), case_.reference(inputs_), "good call");
  }

  CpuCase case_{faults_problem(), GetParam()};
  ref::RandomInputs inputs_ = equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 1);
};

TEST_P(CpuLimits, ACallWhoseThreadsCannotBeMadeChangesNothing) {
  expect_good_call();
  const bool one_launch = GetParam();
  for (const int limit : {1, 2, 7}) {
    for (const int rank : {0, 1}) {
      if (one_launch && rank > 0) continue;
      case_.state(rank).thread_limit = limit;
      EXPECT_THAT(
          error_of([&] { case_.run(inputs_, four_ctas()); }, ErrorCode::system),
          AllOf(HasSubstr(one_launch ? "virtual ranks 0..1: " : fmt::format("rank {}: ", rank)),
                HasSubstr(fmt::format("only {} of the {} threads", limit, one_launch ? 16 : 8)),
                HasSubstr("Resource temporarily unavailable")));
      case_.state(rank).thread_limit = 0;
      EXPECT_EQ(case_.group().layer(0).check().epoch, case_.group().layer(1).check().epoch);
      expect_good_call();
    }
  }
  EXPECT_EQ(case_.group().layer(0).check().epoch, one_launch ? 4U : 7U);
}

/// Each of the allocations of a call's threads fails once.
TEST_P(CpuLimits, AThreadWithoutMemoryEndsTheCallOnAllRanks) {
  const auto expected = case_.run(inputs_);
  int failures = 0;
  for (long at = 0;; at += 1 + at / 16) {
    let_allocations_fail_after(at);
    std::string text;
    std::vector<std::uint16_t> y;
    try {
      y = case_.run(inputs_, four_ctas());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
      text = error.what();
    }
    const bool failed = an_allocation_failed();
    EXPECT_EQ(failed, !text.empty()) << at;
    if (!failed) {
      EXPECT_EQ(y, expected);
      break;
    }
    ++failures;
    EXPECT_THAT(text, HasSubstr("failed: out of memory"));
    for (const int rank : {0, 1}) {
      EXPECT_THAT(error_of([&] { case_.group().layer(rank).check(); }, ErrorCode::fault),
                  AllOf(HasSubstr("could not run its call"), HasSubstr("reset()")));
    }
    case_.group().reset();
    ASSERT_EQ(case_.run(inputs_), expected) << at;
  }
  EXPECT_GT(failures, 10);
}

INSTANTIATE_TEST_SUITE_P(Launches, CpuLimits, ::testing::Bool(), [](const auto& together) {
  return std::string(together.param ? "Together" : "Apart");
});

TEST(ReferenceLimits, AHelperWithoutMemoryIsAnException) {
  const CpuCase layer(faults_problem());
  const auto inputs = equal_inputs(layer.problem(), 64, {ref::RoutingKind::uniform}, 1);
  bool thrown = false;
  // A helper that comes when all is done has nothing to allocate.
  for (int attempt = 0; attempt < 100 && !thrown; ++attempt) {
    let_allocations_fail_after(0);
    try {
      (void)layer.reference(inputs);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    EXPECT_EQ(an_allocation_failed(), thrown);
  }
  EXPECT_TRUE(thrown);
}

TEST(CpuLimitsOfOneRank, APeerThatWaitsLearnsOfIt) {
  CpuCase layer(faults_problem());
  const auto inputs = equal_inputs(layer.problem(), 5, {ref::RoutingKind::uniform}, 1);
  layer.stage(inputs);
  std::vector<std::uint16_t> y(2 * 5 * 256);
  const auto call = [&](int rank) {
    layer.group().layer(rank).forward(y.data() + rank * 5 * 256, 5, layer.routed(rank), nullptr,
                                      four_ctas());
  };
  std::thread waiting([&] {
    EXPECT_THAT(error_of([&] { call(0); }, ErrorCode::fault),
                HasSubstr("rank 1 could not run its call; reset()"));
  });
  layer.state(1).thread_limit = 3;
  EXPECT_THAT(error_of([&] { call(1); }, ErrorCode::system), HasSubstr("rank 1: only 3 of the 8"));
  waiting.join();
  layer.state(1).thread_limit = 0;
  EXPECT_THAT(error_of([&] { call(1); }, ErrorCode::fault), HasSubstr("reset()"));
  layer.group().reset();
  layer.expect_close(layer.run(inputs), layer.reference(inputs), "after reset");
}

}  // namespace
}  // namespace megamoe
