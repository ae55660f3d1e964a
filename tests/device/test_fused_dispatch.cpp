// The dispatch alone on a GPU equals the CPU backend's, bit for bit.
#include <gtest/gtest.h>

#include "host/dispatch.hpp"
#include "tests/device/dispatch_pair.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;

class FusedDispatch : public ::testing::TestWithParam<int> {};

TEST_P(FusedDispatch, EqualsTheCpu) {
  const int ranks = GetParam();
  GpuCase gpu(dispatch_problem(ranks));
  expect_all_dispatches(gpu);
}

INSTANTIATE_TEST_SUITE_P(Virtual, FusedDispatch, ::testing::Values(1, 2, 4, 8));

TEST(FusedDispatchExperts, TheMostPerRank) {
  for (const auto& [ranks, shared] : {std::pair{1, 0}, {1, kMaxSharedExperts}, {8, 0}, {8, 1}}) {
    Problem p = dispatch_problem(ranks);
    p.experts = kMaxExpertsPerRank * ranks;
    p.shared_experts = shared;
    p.top_k = 8;
    p.hidden = 128;
    GpuCase gpu(p);
    DispatchPair pair(gpu);
    for (const RoutingKind kind :
         {RoutingKind::uniform, RoutingKind::balanced, RoutingKind::one_rank}) {
      for (const int tokens : {0, 8, 200}) {  // 200: several route tickets
        const auto inputs = equal_inputs(p, tokens, {kind}, 3);
        for (const int block_rows : {8, 128}) {
          pair.expect_equal(inputs, config_for_block_rows(p, block_rows),
                            fmt::format("{} ranks, {} shared experts, {} tokens, {}", ranks, shared,
                                        tokens, ref::name({kind})));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(FusedDispatchTurns, TakesTurnsWithCallsInTinyRings) {
  Problem p = dispatch_problem(3);
  p.experts = 27;
  p.shared_experts = 2;
  GpuCase gpu(p);
  DispatchPair pair(gpu);
  for (const int block_rows : {8, 32, 128}) {
    KernelConfig config = config_for_block_rows(p, block_rows);
    config.pool_slots = 1;
    config.act_slots = 2;
    config.group_blocks = config.lag_blocks = 1;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const auto inputs = equal_inputs(p, 150, {RoutingKind::masked, 0.1}, 40 + seed);
      pair.expect_equal(inputs, config, "tiny rings");
      if (HasFatalFailure()) return;
      std::vector<std::uint16_t> y;
      ASSERT_NO_THROW(y = gpu.run(with_config(&config)));
      gpu.expect_close(y, inputs, "call after a dispatch");
    }
  }
  EXPECT_EQ(gpu.group().layer(0).check().epoch, 18U);
}

}  // namespace
}  // namespace megamoe
