// The fused kernel against the reference: virtual ranks in one launch on one GPU.
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "tests/device/gpu_case.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;

constexpr int kBlocks[] = {8, 16, 32, 64, 128};

Problem small_problem(int ranks, int top_k = 6) {
  return {.ranks = ranks,
          .experts = 48,
          .top_k = top_k,
          .hidden = 256,
          .intermediate = 128,
          .max_tokens_per_rank = 200};
}

void expect_reference(GpuCase& layer, const ref::RandomInputs& inputs, int block_rows,
                      const std::string& what) {
  const KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
  layer.stage(inputs);
  const std::string label = fmt::format("{}, blocks of {} rows", what, block_rows);
  std::vector<std::uint16_t> y;
  ASSERT_NO_THROW(y = layer.run(with_config(&config))) << label;
  layer.expect_close(y, inputs, label);
}

class FusedRanks : public ::testing::TestWithParam<int> {};

TEST_P(FusedRanks, TokenCountsAndBlocks) {
  GpuCase layer(small_problem(GetParam()));
  for (const int tokens : {0, 1, 7, 8, 48, 130, 192}) {
    const auto inputs = equal_inputs(layer.problem(), tokens, {RoutingKind::uniform}, 1);
    for (const int block_rows : kBlocks) {
      expect_reference(layer, inputs, block_rows, fmt::format("{} tokens", tokens));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(FusedRanks, UnequalAndEmptyRanks) {
  const int ranks = GetParam();
  GpuCase layer(small_problem(ranks));
  std::vector<int> uneven, one_has_all(static_cast<std::size_t>(ranks), 0);
  for (int r = 0; r < ranks; ++r) uneven.push_back(r * 37 % 101);  // rank 0 has none
  one_has_all.back() = 199;
  for (const std::vector<int>& counts : {uneven, one_has_all}) {
    const auto inputs = ref::random_inputs(layer.problem(), counts, {RoutingKind::uniform}, 3);
    for (const int block_rows : {8, 32, 128}) {
      expect_reference(layer, inputs, block_rows, fmt::format("{} ranks, uneven", ranks));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(FusedRanks, Routings) {
  GpuCase layer(small_problem(GetParam()));
  for (const ref::Routing routing :
       {ref::Routing{RoutingKind::one_rank}, ref::Routing{RoutingKind::one_expert},
        ref::Routing{RoutingKind::skewed}, ref::Routing{RoutingKind::balanced},
        ref::Routing{RoutingKind::masked, 0.3}, ref::Routing{RoutingKind::none}}) {
    for (const int block_rows : {8, 64, 128}) {
      expect_reference(layer, equal_inputs(layer.problem(), 130, routing, 5), block_rows,
                       ref::name(routing));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Virtual, FusedRanks, ::testing::Values(1, 2, 4, 8));

TEST(FusedLayer, TopK) {
  for (const int top_k : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    GpuCase layer(small_problem(4, top_k));
    for (const int block_rows : {16, 128}) {
      expect_reference(layer, equal_inputs(layer.problem(), 33, {RoutingKind::uniform}, 4),
                       block_rows, fmt::format("top {}", top_k));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FusedLayer, SharedExpertsBesideTheLargestTopK) {
  for (const auto& [top_k, shared] :
       {std::pair{12, 4}, {13, 4}, {16, 1}, {16, kMaxSharedExperts}}) {
    Problem p = small_problem(2, top_k);
    p.shared_experts = shared;
    GpuCase layer(p);
    for (const int block_rows : {8, 128}) {
      expect_reference(layer, equal_inputs(p, 33, {RoutingKind::masked, 0.1}, 4), block_rows,
                       fmt::format("top {}, {} shared experts", top_k, shared));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FusedLayer, TheMostExpertsPerRank) {
  for (const auto& [ranks, shared] : {std::pair{1, 0}, {1, kMaxSharedExperts}, {8, 1}}) {
    const Problem p = {.ranks = ranks,
                       .experts = kMaxExpertsPerRank * ranks,
                       .top_k = 8,
                       .hidden = 128,
                       .intermediate = 128,
                       .max_tokens_per_rank = 150,
                       .shared_experts = shared};
    GpuCase layer(p);
    for (const auto& [tokens, kind] :
         {std::pair{20, RoutingKind::uniform}, {150, RoutingKind::skewed}}) {
      const auto inputs = equal_inputs(p, tokens, {kind}, 4);
      for (const int block_rows : {8, 32, 128}) {
        expect_reference(layer, inputs, block_rows,
                         fmt::format("{} ranks, {} experts, {} shared", ranks, p.experts, shared));
        if (HasFatalFailure()) return;
      }
    }
  }
}

class FusedShapes : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(FusedShapes, HiddenAndIntermediate) {
  Problem p = small_problem(2, 3);
  p.experts = 8;
  std::tie(p.hidden, p.intermediate) = GetParam();
  GpuCase layer(p);
  const auto inputs = equal_inputs(p, 90, {RoutingKind::masked, 0.1}, 6);
  for (const int block_rows : kBlocks) {
    expect_reference(layer, inputs, block_rows,
                     fmt::format("hidden {}, intermediate {}", p.hidden, p.intermediate));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedShapes,
                         ::testing::Values(std::pair{128, 128}, std::pair{128, 640},
                                           std::pair{640, 128}, std::pair{640, 768},
                                           std::pair{768, 1408}, std::pair{1408, 640},
                                           std::pair{3584, 128}, std::pair{128, 3584},
                                           std::pair{3584, 1408}));

TEST(FusedLayer, ClampAndSharedExperts) {
  for (const int shared : {0, 1, 2}) {
    Problem p = small_problem(2);
    p.hidden = 384;  // an odd number of granules: the last L2 tile is a half
    p.intermediate = 384;
    p.activation.clamp = 0.75F;
    p.shared_experts = shared;
    GpuCase layer(p);
    for (const int block_rows : kBlocks) {
      expect_reference(layer, equal_inputs(p, 40, {RoutingKind::masked, 0.2}, 7), block_rows,
                       fmt::format("clamp, {} shared experts", shared));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FusedLayer, TinyRingsWrapManyTimes) {
  GpuCase layer(small_problem(2));
  const auto inputs = equal_inputs(layer.problem(), 150, {RoutingKind::uniform}, 8);
  layer.stage(inputs);
  for (const int block_rows : {16, 128}) {
    std::vector<std::uint16_t> first;
    for (const int pool_slots : {1, 2, 3}) {
      for (const int act_slots : {2, 3, 5}) {
        for (const auto& [group, lag] : {std::pair{1, 1}, {1, act_slots - 1}, {2, 2}}) {
          KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
          config.pool_slots = pool_slots;
          config.act_slots = act_slots;
          config.group_blocks = group;
          config.lag_blocks = lag;
          const std::string label =
              fmt::format("{} rows, {} pool and {} act slots, groups of {}, lag {}", block_rows,
                          pool_slots, act_slots, group, lag);
          if (!why_invalid(layer.problem(), config).empty()) continue;
          std::vector<std::uint16_t> y;
          ASSERT_NO_THROW(y = layer.run(with_config(&config))) << label;
          if (first.empty()) {
            layer.expect_close(y, inputs, label);
            first = y;
          }
          ASSERT_EQ(y, first) << label;
        }
      }
    }
    ASSERT_FALSE(first.empty());
  }
}

TEST(FusedLayer, TheChosenConfigurationRuns) {
  Problem p = small_problem(2, 4);
  p.experts = 8;
  p.max_tokens_per_rank = 1000;
  GpuCase layer(p);
  for (const int tokens : {1, 5, 20, 100, 1000}) {
    const auto inputs = equal_inputs(p, tokens, {RoutingKind::uniform}, 9);
    layer.stage(inputs);
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = layer.run()) << tokens;
    layer.expect_close(y, inputs, layer.group().layer(0).check().config);
  }
}

TEST(FusedLayer, StatisticsAreExact) {
  const Problem p = small_problem(4);
  GpuCase layer(p);
  GpuArray<std::int64_t> stats(0, static_cast<std::size_t>(p.experts));
  std::vector<std::int64_t> sums(static_cast<std::size_t>(p.experts), 0);
  for (int call = 0; call < 6; ++call) {
    const auto inputs = ref::random_inputs(p, std::vector<int>{call * 10, 3, 0, 50},
                                           {RoutingKind::masked, 0.4}, 20 + call);
    const KernelConfig config = config_for_block_rows(p, kBlocks[call % 5]);
    ForwardOptions options = with_config(&config);
    options.recv_stats = stats.data();
    layer.stage(inputs);
    ASSERT_NO_THROW(layer.run(options));
    const auto expected = ref::received_rows_per_expert(inputs.view());
    for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += expected[e];
    EXPECT_EQ(stats.download(), sums) << "call " << call;
    for (int r = 0; r < p.ranks; ++r) {
      std::int64_t rows = 0;
      for (int e = 0; e < p.experts_per_rank(); ++e)
        rows += expected[static_cast<std::size_t>(r * p.experts_per_rank() + e)];
      EXPECT_EQ(layer.group().layer(r).check().rows_received, rows) << "rank " << r;
    }
    EXPECT_EQ(layer.group().layer(0).check().epoch, static_cast<std::uint32_t>(call + 1));
  }
}

}  // namespace
}  // namespace megamoe
