// The staging kernel against the CPU's staging, bit for bit.
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "tests/device/gpu_case.hpp"

namespace megamoe {
namespace {

using ::testing::HasSubstr;

/// The same inputs staged on both sides.
class StageKernel : public ::testing::TestWithParam<int> {
 protected:
  static Problem problem() {
    return {.ranks = 1,
            .experts = 16,
            .top_k = 5,
            .hidden = GetParam(),
            .intermediate = 128,
            .max_tokens_per_rank = 700};
  }

  template <class Id>
  void stage(const ref::RankTokens& tokens, const std::vector<Id>& ids, float scaling) {
    const GpuArray<std::uint16_t> x(0, std::span<const std::uint16_t>(tokens.hidden_states));
    const GpuArray<Id> gpu_ids(0, std::span<const Id>(ids));
    const GpuArray<float> weights(0, std::span<const float>(tokens.topk_weights));
    Layer& layer = gpu_.layer(0);
    layer.stage(x.data(), std::span<const Id>(gpu_ids.data(), ids.size()),
                std::span<const float>(weights.data(), ids.size()), tokens.num_tokens, scaling);
    layer.synchronize();
    cpu_.layer(0).stage(tokens.hidden_states.data(), std::span<const Id>(ids), tokens.topk_weights,
                        tokens.num_tokens, scaling);
  }

  template <class T>
  void expect_same(const char* what, const T* gpu, const T* cpu, std::size_t count) {
    std::vector<std::byte> copy(count * sizeof(T));
    if (count == 0) return;
    cuda::check(cudaMemcpy(copy.data(), gpu, copy.size(), cudaMemcpyDefault), what);
    const auto* expected = reinterpret_cast<const std::byte*>(cpu);
    for (std::size_t i = 0; i < copy.size(); ++i) {
      ASSERT_EQ(copy[i], expected[i]) << what << ", value " << i / sizeof(T) << " of " << count;
    }
  }
  void expect_equal(int num_tokens) {
    const Problem p = problem();
    const InputViews g = gpu_.layer(0).inputs(), c = cpu_.layer(0).inputs();
    const auto rows = static_cast<std::size_t>(num_tokens);
    const auto slots = static_cast<std::size_t>(p.max_tokens_per_rank) * p.top_k;
    expect_same("x", g.x, c.x, rows * p.hidden);
    expect_same("x_scales", g.x_scales, c.x_scales, rows * p.hidden / 32);
    expect_same("topk_idx", g.topk_idx, c.topk_idx, slots);
    expect_same("topk_weights", g.topk_weights, c.topk_weights, slots);
  }

  Group gpu_{problem(), SymmetricMemory::cuda_virtual(1, 0)};
  Group cpu_{problem(), SymmetricMemory::host(1)};
};

TEST_P(StageKernel, EqualsTheCpuOverChangingCounts) {
  std::uint64_t seed = 1;
  for (const int tokens : {192, 8, 0, 700, 1, 48, 699, 0, 0, 3}) {
    const auto inputs = equal_inputs(problem(), tokens, {ref::RoutingKind::masked, 0.3}, ++seed);
    const ref::RankTokens& own = inputs.ranks[0];
    if (seed % 2 == 0) {
      stage(own, own.topk_idx, 1.0F);
    } else {
      stage(own, own.topk_idx_32(), 2.5F);
    }
    expect_equal(tokens);
    if (HasFatalFailure()) return;
  }
}

TEST_P(StageKernel, EqualsTheCpuForSpecialValues) {
  auto inputs = equal_inputs(problem(), 40, {ref::RoutingKind::uniform}, 5);
  auto& x = inputs.ranks[0].hidden_states;
  const auto hidden = static_cast<std::size_t>(GetParam());
  const auto fill = [&](std::size_t token, auto value) {
    for (std::size_t i = 0; i < hidden; ++i) x[token * hidden + i] = value(i);
  };
  fill(0, [](std::size_t) { return std::uint16_t{0}; });
  fill(1, [](std::size_t) { return std::uint16_t{0x8000}; });                   // -0
  fill(2, [](std::size_t i) { return static_cast<std::uint16_t>(i % 0x80); });  // denormals
  fill(3, [](std::size_t i) { return float_to_bf16(i % 2 == 0 ? 3e38F : -3e38F); });
  fill(4, [](std::size_t i) { return static_cast<std::uint16_t>(i * 40503); });  // all kinds
  fill(5, [](std::size_t i) { return float_to_bf16(static_cast<float>(i % 449) * 0.5F); });
  fill(6, [](std::size_t) { return float_to_bf16(1e-38F); });
  x[7 * hidden + 3] = 0x7fc0;  // NaN
  x[8 * hidden + 3] = 0xffc1;  // another
  x[9 * hidden + 3] = 0x7f80;  // Inf
  x[10 * hidden + 3] = 0xff80;
  // Every BF16 as a group's maximum, and as a value beside one.
  for (std::size_t i = 0; i < 29 * hidden; ++i)
    x[11 * hidden + i] = static_cast<std::uint16_t>(i * 7919 + 13);
  stage(inputs.ranks[0], inputs.ranks[0].topk_idx, 1.0F);
  expect_equal(40);
}

TEST_P(StageKernel, KeepsIdsOutOfRangeOfBothWidths) {
  const auto inputs = equal_inputs(problem(), 9, {ref::RoutingKind::uniform}, 6);
  const ref::RankTokens& own = inputs.ranks[0];
  using Narrow = std::numeric_limits<std::int32_t>;
  using Wide = std::numeric_limits<std::int64_t>;
  const auto check = [&](const auto& ids) {
    stage(own, ids, 1.0F);
    expect_equal(9);
    const std::vector<std::int64_t> expected(ids.begin(), ids.end());
    expect_same("ids", gpu_.layer(0).inputs().topk_idx, expected.data(), expected.size());
  };
  std::vector<std::int32_t> narrow = own.topk_idx_32();
  narrow[3] = problem().experts;
  narrow[4] = -1;
  narrow[17] = -2;
  narrow[20] = Narrow::max();
  narrow[44] = Narrow::min();
  check(narrow);
  std::vector<std::int64_t> wide = own.topk_idx;
  wide[3] = std::int64_t{1} << 32U;  // 0 in its low half
  wide[20] = Wide::max();
  wide[44] = Wide::min();
  check(wide);
}

INSTANTIATE_TEST_SUITE_P(Hidden, StageKernel, ::testing::Values(128, 640, 2944, 7168));

TEST(StageRefusals, HostMemoryAndMisalignment) {
  GpuCase layer({.ranks = 1,
                 .experts = 4,
                 .top_k = 1,
                 .hidden = 128,
                 .intermediate = 128,
                 .max_tokens_per_rank = 4});
  const std::vector<std::uint16_t> x(4 * 128);
  const std::vector<std::int64_t> ids(4);
  const std::vector<float> weights(4);
  EXPECT_THAT(error_of([&] { layer.group().layer(0).stage(x.data(), std::span(ids), weights, 4); },
                       ErrorCode::invalid_argument),
              HasSubstr("hidden_states = "));
  const GpuArray<std::uint16_t> gpu_x(0, std::size_t{5 * 128});
  EXPECT_THAT(
      error_of([&] { layer.group().layer(0).stage(gpu_x.data() + 1, std::span(ids), weights, 4); },
               ErrorCode::invalid_argument),
      HasSubstr("aligned to 16"));
}

}  // namespace
}  // namespace megamoe
