#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "ref/compare.hpp"
#include "ref/random_case.hpp"

namespace megamoe::ref {
namespace {

using ::testing::Each;

const std::vector<Precision> kPrecisions = {Precision::fp8, Precision::bf16, Precision::mxfp4,
                                            Precision::mxfp8_mxfp4};

Problem problem_of(Precision precision, int ranks = 2) {
  return {.ranks = ranks,
          .experts = 8,
          .top_k = 4,
          .hidden = 256,
          .intermediate = 384,
          .max_tokens_per_rank = 64,
          .precision = precision,
          .shared_experts = 1};
}

std::vector<std::uint16_t> bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (float v : values) bits.push_back(float_to_bf16(v));
  return bits;
}

TEST(Compare, FollowsItsFormula) {
  const auto a = bf16({1, 2, 3, 4});
  const auto b = bf16({1, 2, 3, 5});
  // 1 - 2 * 34 / (30 + 39) = 1/69; second row: 1 / sqrt(34)
  const Difference d = compare(a, b, 2);
  EXPECT_NEAR(d.diff, 1.0 / 69, 1e-15);
  EXPECT_NEAR(d.worst_row_relative_l2, 1 / std::sqrt(34.0), 1e-15);
  EXPECT_EQ(d.worst_row, 1);
  EXPECT_EQ(compare(a, a, 2).diff, 0.0);
  EXPECT_NEAR(compare(a, bf16({-1, -2, -3, -4}), 4).diff, 2.0, 1e-15);
}

TEST(Compare, Zeros) {
  const auto zero = bf16({0, 0, -0.0F, 0});
  const auto some = bf16({0, 0, 1, 0});
  EXPECT_EQ(compare(zero, zero, 2).diff, 0.0);
  EXPECT_EQ(compare(zero, zero, 2).worst_row_relative_l2, 0.0);
  EXPECT_EQ(compare(zero, some, 2).diff, 1.0);
  EXPECT_EQ(compare(zero, some, 2).worst_row_relative_l2, 1.0);
  EXPECT_EQ(compare(some, zero, 2).diff, 1.0);
  EXPECT_EQ(compare(some, zero, 2).worst_row_relative_l2, std::numeric_limits<double>::infinity());
  EXPECT_EQ(compare(some, zero, 2).worst_row, 1);
  EXPECT_EQ(compare({}, {}, 2).worst_row, -1);
}

TEST(Compare, NanAndInfPassOnlyBesideTheSame) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float a : {kNan, kInf, -kInf, 4.0F}) {
    for (const float b : {kNan, kInf, -kInf, 4.0F}) {
      const auto y = bf16({1, 2, 3, a, 5, 6});
      const auto y_ref = bf16({1, 2, 3, b, 5, 6});
      const Difference d = compare(y, y_ref, 2);
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      EXPECT_EQ(d.diff, same ? 0 : kInf) << a << " " << b;
      EXPECT_EQ(d.worst_row_relative_l2, same ? 0 : kInf);
      EXPECT_EQ(d.worst_row, same ? 0 : 1);
      EXPECT_EQ(d.same_non_finite, same && a != 4 ? 1 : 0);
      EXPECT_EQ(d.wrong_non_finite, same ? 0 : 1);
    }
  }
  // Their bits may differ, and what is finite beside them counts.
  const std::vector<std::uint16_t> y = {0x7fc0, 0x3f80}, y_ref = {0xffff, 0x4000};
  EXPECT_NEAR(compare(y, y_ref, 2).diff, 1.0 / 5, 1e-15);
  EXPECT_NEAR(compare(y, y_ref, 2).worst_row_relative_l2, 0.5, 1e-15);
}

TEST(Compare, RefusesOtherSizes) {
  const auto four = bf16({1, 2, 3, 4});
  EXPECT_THROW((void)compare(four, bf16({1, 2}), 2), Error);
  EXPECT_THROW((void)compare(four, four, 3), Error);
  EXPECT_THROW((void)compare(four, four, 0), Error);
}

TEST(RandomCase, SameForAnyNumberOfRanksOrderAndThreads) {
  for (Precision precision : kPrecisions) {
    const Problem one = problem_of(precision, 1);
    const Problem four = problem_of(precision, 4);
    const std::vector<int> all = {11};
    const std::vector<int> parts = {3, 0, 7, 1};
    const auto layer = random_layer(one, 5, {.w1_order = W1Order::gate_then_up, .biases = true});
    const auto split = random_layer(four, 5, {.biases = true});
    const auto y = run(random_inputs(one, all, {}, 6).view(), layer.view());
    const auto inputs = random_inputs(four, parts, {}, 6);
    EXPECT_EQ(run(inputs.view(), split.view(), 3), y) << name(precision);
    // Any one row alone, too.
    const Row row{2, 4};
    const auto alone = run_rows(inputs.view(), split.view(), std::span(&row, 1));
    EXPECT_EQ(alone, std::vector(y.begin() + 7 * 256, y.begin() + 8 * 256)) << name(precision);
    EXPECT_NE(run(random_inputs(one, all, {}, 7).view(), layer.view()), y);
  }
}

TEST(RandomCase, ValuesHaveARealisticScale) {
  for (Precision precision : kPrecisions) {
    Problem p = problem_of(precision);
    p.shared_experts = 0;
    const std::vector<int> counts = {16, 16};
    const auto inputs = random_inputs(p, counts, {}, 8);
    const auto y = run(inputs.view(), random_layer(p, 9).view());
    double sum = 0;
    for (std::uint16_t bits : y) {
      const double value = bf16_to_float(bits);
      ASSERT_TRUE(std::isfinite(value));
      sum += value * value;
    }
    const double deviation = std::sqrt(sum / static_cast<double>(y.size()));
    EXPECT_GT(deviation, 0.05) << name(precision);
    EXPECT_LT(deviation, 50.0) << name(precision);
  }
}

TEST(RandomCase, StagedValuesAreTheHiddenStates) {
  const std::vector<int> counts = {3, 2};
  const Problem p = problem_of(Precision::fp8);
  const auto inputs = random_inputs(p, counts, {}, 10);
  const RankTokens& t = inputs.ranks[1];
  ASSERT_EQ(t.num_tokens, 2);
  ASSERT_EQ(t.x.size(), 2U * 256);
  ASSERT_EQ(t.x_scales.size(), 2U * 2 * sizeof(float));
  std::vector<float> row;
  for (std::size_t i = 256; i < 512; ++i) row.push_back(bf16_to_float(t.hidden_states[i]));
  std::vector<std::uint8_t> codes(256);
  std::vector<float> scales(2);
  quantize_row(row.data(), 256, codes.data(), scales.data());
  EXPECT_EQ(std::memcmp(codes.data(), t.x.data() + 256, 256), 0);
  EXPECT_EQ(std::memcmp(scales.data(), t.x_scales.data() + 8, 8), 0);
}

std::vector<std::int64_t> ids_of(const Problem& p, const Routing& routing, int tokens,
                                 std::uint64_t seed) {
  const std::vector<int> counts(static_cast<std::size_t>(p.ranks), tokens);
  std::vector<std::int64_t> ids;
  for (const RankTokens& t : random_inputs(p, counts, routing, seed).ranks) {
    for (std::size_t i = 0; i < t.topk_idx.size(); ++i)
      EXPECT_EQ(t.topk_idx_32()[i], t.topk_idx[i]);
    ids.insert(ids.end(), t.topk_idx.begin(), t.topk_idx.end());
  }
  return ids;
}

TEST(Routing, TokensNeverHaveAnExpertTwice) {
  const Problem p = problem_of(Precision::bf16);
  for (const char* text : {"uniform", "balanced", "one-rank", "one-expert", "skewed", "hot-expert",
                           "hot-rank", "masked:0.4", "none"}) {
    const auto ids = ids_of(p, parse_routing(text), 40, 11);
    for (std::size_t token = 0; token < ids.size() / 4; ++token) {
      std::set<std::int64_t> seen;
      for (std::size_t k = 0; k < 4; ++k) {
        const std::int64_t id = ids[token * 4 + k];
        ASSERT_GE(id, -1);
        ASSERT_LT(id, 8);
        ASSERT_TRUE(id < 0 || seen.insert(id).second) << text;
      }
    }
    EXPECT_EQ(name(parse_routing(text)), text);
  }
}

TEST(Routing, KindsDoWhatTheySay) {
  Problem p = problem_of(Precision::bf16);
  const auto received = [&](const Routing& routing, std::uint64_t seed) {
    const std::vector<int> counts = {60, 68};
    return received_rows_per_expert(random_inputs(p, counts, routing, seed).view());
  };
  EXPECT_THAT(received({RoutingKind::balanced}, 1), Each(64));
  EXPECT_THAT(received({RoutingKind::none}, 1), Each(0));
  const auto uniform = received({}, 1);
  for (std::int64_t count : uniform) EXPECT_NEAR(static_cast<double>(count), 64.0, 30.0);
  const auto one_rank = received({RoutingKind::one_rank}, 3);  // 3 % 2: rank 1
  for (std::size_t e = 0; e < 8; ++e) EXPECT_EQ(one_rank[e], e < 4 ? 0 : 128) << e;
  const auto one_expert = received({RoutingKind::one_expert}, 13);  // 13 % 8: expert 5
  for (std::size_t e = 0; e < 8; ++e) EXPECT_EQ(one_expert[e], e == 5 ? 128 : 0) << e;
  std::int64_t masked = 0;
  for (std::int64_t count : received({RoutingKind::masked, 0.25}, 2)) masked += count;
  EXPECT_NEAR(static_cast<double>(masked), 384.0, 50.0);  // 512 slots, deviation 10
  p.experts = 256;
  p.top_k = 8;
  const auto skewed = received({RoutingKind::skewed}, 2);
  const auto most = static_cast<double>(*std::max_element(skewed.begin(), skewed.end()));
  EXPECT_GT(most, 3.0 * 128 * 8 / 256);  // the mean is 4
}

TEST(Routing, HotOnesGetTheirMultipleOfTheMean) {
  Problem p = problem_of(Precision::bf16);
  p.ranks = 8;
  p.experts = 256;
  p.top_k = 8;
  const std::vector<int> counts(8, 500);
  const auto received = [&](RoutingKind kind, std::uint64_t seed) {
    const auto routing = random_routing(p, counts, {kind}, seed);
    std::vector<double> rows(256);
    for (const TokenRouting& rank : routing)
      for (const std::int64_t id : rank.topk_idx) ++rows.at(static_cast<std::size_t>(id));
    return rows;
  };
  const auto hot_expert = received(RoutingKind::hot_expert, 301);  // 301 % 256: expert 45
  EXPECT_NEAR(hot_expert[45], 7 * 125, 150);                       // of 4000 tokens, deviation 27
  for (std::size_t e = 0; e < 256; ++e) {
    if (e == 45) continue;
    EXPECT_NEAR(hot_expert[e], 122, 60) << e;
  }
  const auto hot_rank = received(RoutingKind::hot_rank, 13);  // 13 % 8: rank 5
  for (std::size_t rank = 0; rank < 8; ++rank) {
    double sum = 0;
    for (std::size_t e = rank * 32; e < rank * 32 + 32; ++e) sum += hot_rank[e];
    EXPECT_NEAR(sum, rank == 5 ? 3 * 4000 : (32000 - 3 * 4000) / 7.0, 450) << rank;
  }
  // Beyond what can be had: all tokens, and all experts of the rank.
  p.ranks = 2;
  p.experts = 8;
  p.top_k = 6;
  const auto all = random_routing(p, std::vector<int>{40, 40}, {RoutingKind::hot_expert}, 3);
  const auto rank = random_routing(p, std::vector<int>{40, 40}, {RoutingKind::hot_rank}, 3);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(std::count(all[r].topk_idx.begin(), all[r].topk_idx.end(), 3), 40);
    for (const std::int64_t id : {4, 5, 6, 7})
      EXPECT_EQ(std::count(rank[r].topk_idx.begin(), rank[r].topk_idx.end(), id), 40);
  }
}

TEST(Routing, RefusesOtherText) {
  for (const char* text : {"", "uniforms", "masked", "masked:", "masked:1.5", "masked:-1",
                           "masked:nan", "masked:0.5x"})
    EXPECT_THROW((void)parse_routing(text), Error) << text;
}

}  // namespace
}  // namespace megamoe::ref
