#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "ref/random_case.hpp"
#include "ref/reference.hpp"

namespace megamoe::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kSize = 128;  // hidden and intermediate of every case by hand

Problem small_problem(Precision precision) {
  return {.ranks = 1,
          .experts = 2,
          .top_k = 2,
          .hidden = kSize,
          .intermediate = kSize,
          .max_tokens_per_rank = 4,
          .precision = precision};
}

template <class T>
void put(std::vector<std::byte>& data, std::size_t index, T value) {
  ASSERT_LE((index + 1) * sizeof(T), data.size());
  std::memcpy(data.data() + index * sizeof(T), &value, sizeof(T));
}

/// A layer of zeros, in which a test sets the few values that matter. Scales start at 1.
struct HandCase {
  explicit HandCase(Precision precision, WeightOptions options = {})
      : problem(small_problem(precision)),
        weights(allocate_tensors(problem, problem.experts, options)),
        x(kSize * (precision == Precision::bf16 ? 2 : 1)),
        x_scales(precision == Precision::mxfp8_mxfp4 ? 4 : sizeof(float)) {
    const auto ones = [](std::vector<std::byte>& scales, bool ue8m0) {
      for (std::size_t i = 0; ue8m0 && i < scales.size(); ++i) scales[i] = std::byte{127};
      for (std::size_t i = 0; !ue8m0 && i < scales.size() / 4; ++i) put(scales, i, 1.0F);
    };
    ones(x_scales, precision == Precision::mxfp8_mxfp4);
    ones(weights.w1_scales, precision != Precision::fp8);
    ones(weights.w2_scales, precision != Precision::fp8);
  }

  void set_x(std::size_t channel, float code) {
    if (problem.precision == Precision::bf16) return put(x, channel, float_to_bf16(code));
    put(x, channel, float_to_e4m3(code));
  }
  void set_w1(std::size_t expert, std::size_t row, std::size_t col, float code) {
    const std::size_t stored =
        weights.shape.w1_order == W1Order::interleaved_8
            ? static_cast<std::size_t>(interleaved_row(static_cast<int>(row), kSize))
            : row;
    set(weights.w1, (expert * 2 * kSize + stored) * kSize + col, code);
  }
  void set_w2(std::size_t expert, std::size_t row, std::size_t col, float code) {
    set(weights.w2, (expert * kSize + row) * kSize + col, code);
  }
  void set(std::vector<std::byte>& data, std::size_t index, float code) {
    if (problem.precision == Precision::fp8) return put(data, index, float_to_e4m3(code));
    if (problem.precision == Precision::bf16) return put(data, index, float_to_bf16(code));
    data[index / 2] |= static_cast<std::byte>(float_to_e2m1(code) << (index % 2 * 4));
  }

  /// y of the only token.
  std::vector<float> run() {
    Input input{problem, {{1, x.data(), x_scales.data(), ids.data(), topk_weights.data()}}};
    LayerWeights layer{{weights.view()}, {}};
    if (shared.shape.num_experts > 0) layer.shared = {shared.view()};
    std::vector<float> y;
    for (std::uint16_t bits : ref::run(input, layer)) y.push_back(bf16_to_float(bits));
    return y;
  }

  Problem problem;
  OwnedExpertTensors weights;
  OwnedExpertTensors shared;
  std::vector<std::byte> x, x_scales;
  std::vector<std::int64_t> ids = {0, -1};
  std::vector<float> topk_weights = {1.0F, 1.0F};
};

/// Gate channel c gives 1 and up channel c gives `up`, so that h[c] = silu(1) * up.
void set_unit_gate(HandCase& c, std::size_t expert, std::size_t channel, float up) {
  c.set_w1(expert, channel, 0, 1.0F);
  c.set_w1(expert, kSize + channel, 0, up);
}

void expect_only(const std::vector<float>& y, std::vector<std::pair<std::size_t, float>> expected) {
  std::vector<float> all(kSize, 0.0F);
  for (const auto& [channel, value] : expected) all[channel] = value;
  EXPECT_EQ(y, all);
}

TEST(Reference, Fp8ByHand) {
  for (W1Order order : {W1Order::gate_then_up, W1Order::interleaved_8}) {
    HandCase c(Precision::fp8, {.w1_order = order});
    c.set_x(0, 2.0F);
    put(c.x_scales, 0, 0.5F);           // x[0] = 2 * 0.5 = 1
    put(c.weights.w1_scales, 0, 2.0F);  // scale of the gate block
    put(c.weights.w1_scales, 1, 4.0F);  // scale of the up block
    put(c.weights.w2_scales, 0, 0.25F);
    c.set_w1(0, 9, 0, 0.5F);              // g[9] = 0.5 * 2 = 1
    c.set_w1(0, kSize + 9, 0, 0.5F);      // u[9] = 0.5 * 4 = 2
    c.set_w1(0, 70, 0, 0.5F);             // g[70] = 1
    c.set_w1(0, kSize + 70, 0, 0x1p-8F);  // u[70] = 2^-8 * 4 = 1/64
    c.set_w2(0, 5, 9, 2.0F);              // w2[5][9] = 2 * 0.25 = 0.5
    c.set_w2(0, 6, 70, 64.0F);            // w2[6][70] = 64 * 0.25 = 16
    c.topk_weights[0] = 0.5F;
    // h[9] = silu(1) * 2 = 1.46211716: the amax, code 448, decoded again to 1.46211716.
    // h[70] = silu(1) / 64 = 0.01142279; * 448 / 1.46211716 gives 3.5: a code, exactly.
    // o[5] = 0.73105858, BF16 0.73046875; o[6] = 0.01142279 * 16 = 0.18276464, BF16 0.1826171875.
    expect_only(c.run(), {{5, 0.365234375F}, {6, 0.09130859375F}});
  }
}

TEST(Reference, Fp8RoundsHToCodes) {
  HandCase c(Precision::fp8);
  c.set_x(0, 1.0F);
  set_unit_gate(c, 0, 3, 2.0F);         // h[3] = 1.46211716
  set_unit_gate(c, 0, 4, 0.01953125F);  // h[4] = 0.73105858 * 5/256 = 0.01427849
  c.set_w2(0, 7, 4, 16.0F);
  // h[4] * 448 / 1.46211716 = 4.375, between 4 and 4.5: code 4.5, so h[4] becomes 4.5 * 1.46211716
  // / 448 = 0.01468645, o[7] = 0.23498314 and, in steps of 2^-10, BF16 241 / 1024. Unrounded h
  // would give 0.22845581, 234 / 1024.
  expect_only(c.run(), {{7, 241.0F / 1024}});
}

TEST(Reference, Mxfp4ByHand) {
  HandCase c(Precision::mxfp4);
  c.set_x(33, 1.0F);
  put(c.x_scales, 0, 3.0F);           // x[33] = 3
  c.set_w1(0, 8, 33, 1.5F);           // gate row 8 lies in row 16 of the kernel's order
  c.set_w1(0, kSize + 8, 33, -4.0F);  // up row 8 in row 24
  // Four scales per row; channel 33 has the second.
  c.weights.w1_scales[16 * 4 + 1] = std::byte{126};  // 1/2: g = 3 * 1.5 / 2 = 2.25
  c.weights.w1_scales[24 * 4 + 1] = std::byte{128};  // 2: u = 3 * -4 * 2 = -24
  c.set_w2(0, 127, 8, 6.0F);
  c.weights.w2_scales[127 * 4] = std::byte{124};  // 1/8: w2 = 0.75
  // silu(2.25) = 2.25 * 0.90465054 = 2.03546371; h = -48.851129, code -448.
  // o = -36.638347; BF16 steps of 1/4: -36.75 (146.55 steps round to 147).
  expect_only(c.run(), {{127, -36.75F}});
}

TEST(Reference, Mxfp8ByHand) {
  HandCase c(Precision::mxfp8_mxfp4);
  c.set_x(64, 8.0F);
  c.x_scales[2] = std::byte{124};  // 1/8: x[64] = 1
  c.set_w1(0, 0, 64, 1.0F);
  c.set_w1(0, kSize, 64, 2.0F);
  c.set_w1(0, 40, 64, 1.0F);
  c.set_w1(0, kSize + 40, 64, 0.5F);
  c.set_w2(0, 0, 0, 1.0F);
  c.set_w2(0, 1, 40, 1.0F);
  // h[0] = 1.46211716: scale 2^ceil(log2(1.46211716 / 448)) = 2^-8; * 256 gives 374.3, between 352
  // and 384: 384, so h[0] = 1.5. h[40] = 0.36552929, in a group of its own: scale 2^-10, * 1024
  // gives 374.3 again: h[40] = 0.375.
  expect_only(c.run(), {{0, 1.5F}, {1, 0.375F}});
}

TEST(Reference, Bf16ByHand) {
  HandCase c(Precision::bf16);
  c.set_x(1, 1.0F);
  c.set_w1(0, 2, 1, 1.0F);
  c.set_w1(0, kSize + 2, 1, 2.0F);
  c.set_w2(0, 0, 2, 1.015625F);
  // h = 1.46211716, BF16 1.4609375 (187 / 128); * 65 / 64 = 1.48376465, BF16 190 / 128. From an
  // unrounded h: 1.48496274, the same; times 1.0234375 they differ: 1.49517822 (191 / 128)
  // against 1.49638553 (192 / 128).
  expect_only(c.run(), {{0, 190.0F / 128}});
  put(c.weights.w2, 2, float_to_bf16(1.0234375F));
  expect_only(c.run(), {{0, 191.0F / 128}});
}

TEST(Reference, BiasesAndTheirOrder) {
  for (W1Order order : {W1Order::gate_then_up, W1Order::interleaved_8}) {
    HandCase c(Precision::bf16, {.w1_order = order, .biases = true});
    const bool interleaved = order == W1Order::interleaved_8;
    c.weights.b1[interleaved ? 16 : 8] = 1.0F;          // gate of channel 8
    c.weights.b1[interleaved ? 24 : kSize + 8] = 2.0F;  // up of channel 8
    c.set_w2(0, 0, 8, 1.0F);
    c.weights.b2[0] = 0.0390625F;
    c.weights.b2[1] = -3.0F;
    // h = silu(1) * 2, BF16 1.4609375; o[0] = 1.4609375 + 0.0390625 = 1.5
    expect_only(c.run(), {{0, 1.5F}, {1, -3.0F}});
  }
}

TEST(Reference, ActivationParametersReachTheActivation) {
  HandCase c(Precision::bf16);
  c.set_x(0, 1.0F);
  c.set_w1(0, 0, 0, 10.0F);
  c.set_w1(0, kSize, 0, -10.0F);
  c.set_w2(0, 0, 0, 1.0F);
  c.problem.activation.clamp = 4.0F;
  // silu(4) * -4 = -3.92805516 * 4 = -15.71222064; BF16 steps of 1/16: -15.6875 (251.4 steps)
  expect_only(c.run(), {{0, -15.6875F}});
  c.problem.activation = swiglu_oai();
  // 7 * sigmoid(11.914) * (-7 + 1) = -41.99972; BF16 -42
  expect_only(c.run(), {{0, -42.0F}});
  c.problem.activation = {.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F};
  // 4 tanh(2.5) sigmoid(10) 25 tanh(-0.4) = 3.94645720 * 0.99995460 * -9.49872406 = -37.484611;
  // BF16 steps of 1/4: -37.5
  expect_only(c.run(), {{0, -37.5F}});
}

/// Expert e gives o[0] = value[e] exactly: through its second bias alone.
HandCase constant_experts(float first, float second) {
  HandCase c(Precision::bf16, {.biases = true});
  c.weights.b2[0] = first;
  c.weights.b2[kSize] = second;
  return c;
}

TEST(Reference, SumsSlotsInOrderWithFusedMultiplyAdds) {
  HandCase c = constant_experts(1.0F, -1.0F);
  c.ids = {0, 1};
  // 1 + 2^-24 is rounded to 1 in FP32, so the order is visible: ((1 * 1) - 1 * (1 - 2^-24)).
  c.topk_weights = {1.0F, 1.0F - 0x1p-24F};
  expect_only(c.run(), {{0, 0x1p-24F}});
  // A fused product keeps its low bits: 0.1 * 1.0078125 - 0.1 * 1.0078125 rounded would be 0.
  c = constant_experts(1.0078125F, -1.0078125F);
  c.ids = {0, 1};
  c.topk_weights = {0.1F, 0.1F};
  const float rounded = 0.1F * 1.0078125F;
  const double exact = 0.1F * 1.0078125;
  EXPECT_NE(rounded, exact);
  const auto expected = bf16_to_float(float_to_bf16(static_cast<float>(rounded - exact)));
  expect_only(c.run(), {{0, expected}});
}

TEST(Reference, RoundsEachContributionToBf16) {
  HandCase c = constant_experts(1.00390625F, 1.00390625F);  // 1 + 2^-8: a tie, to 1
  c.ids = {0, 1};
  expect_only(c.run(), {{0, 2.0F}});
}

TEST(Reference, IdsThatAreNoExpertContributeNothing) {
  HandCase c = constant_experts(8.0F, 4.0F);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t id :
       {std::int64_t{-1}, std::int64_t{2}, std::int64_t{-7}, huge, -huge, std::int64_t{1} << 32}) {
    c.ids = {id, 1};
    expect_only(c.run(), {{0, 4.0F}});
    c.ids = {id, id};
    for (float value : c.run()) {
      EXPECT_EQ(value, 0.0F);
      EXPECT_FALSE(std::signbit(value));
    }
  }
}

TEST(Reference, TheSameExpertTwiceCountsTwice) {
  HandCase c = constant_experts(8.0F, 4.0F);
  c.ids = {1, 1};
  c.topk_weights = {0.5F, 0.25F};
  expect_only(c.run(), {{0, 3.0F}});
}

TEST(Reference, SharedExpertsComeLastWithWeightOne) {
  HandCase c = constant_experts(256.0F, -256.0F);
  c.problem.shared_experts = 2;
  c.shared = allocate_tensors(c.problem, 2, {.biases = true});
  c.shared.b2[0] = 0x1p-17F;
  c.shared.b2[kSize] = 1.0F;
  c.ids = {0, -1};
  // 256 + 2^-17 is rounded to 256 (FP32 steps of 2^-15), then + 1 = 257, a BF16 tie: 256.
  expect_only(c.run(), {{0, 256.0F}});
  c.ids = {-1, -1};
  expect_only(c.run(), {{0, 1.0F}});  // 2^-17 + 1, rounded to BF16
  c.ids = {0, 1};
  c.topk_weights = {1.0F, 1.0F};
  c.shared.b2[kSize] = 0.0F;
  expect_only(c.run(), {{0, 0x1p-17F}});  // last: 256 - 256 + 2^-17
}

TEST(Reference, ReadsTheExpertOfTheOwningRank) {
  const Problem p{.ranks = 3,
                  .experts = 6,
                  .top_k = 1,
                  .hidden = kSize,
                  .intermediate = kSize,
                  .max_tokens_per_rank = 8,
                  .precision = Precision::bf16};
  std::vector<OwnedExpertTensors> owned;
  LayerWeights layer;
  for (int rank = 0; rank < 3; ++rank) {
    owned.push_back(allocate_tensors(p, 2, {.biases = true}));
    owned.back().b2[0] = static_cast<float>(10 * rank + 1);
    owned.back().b2[kSize] = static_cast<float>(10 * rank + 2);
  }
  for (const auto& t : owned) layer.routed.push_back(t.view());
  const std::vector<std::uint16_t> x(6 * kSize, 0);
  const std::vector<std::int64_t> ids = {0, 1, 2, 3, 4, 5};
  const std::vector<float> weights(6, 1.0F);
  const auto* bytes = reinterpret_cast<const std::byte*>(x.data());
  const Input input{p,
                    {{0, nullptr, nullptr, nullptr, nullptr},
                     {6, bytes, nullptr, ids.data(), weights.data()},
                     {2, bytes, nullptr, ids.data() + 4, weights.data()}}};
  const auto y = run(input, layer);
  ASSERT_EQ(y.size(), 8 * kSize);
  std::vector<float> first;
  for (std::size_t t = 0; t < 8; ++t) first.push_back(bf16_to_float(y[t * kSize]));
  EXPECT_THAT(first, ElementsAre(1, 2, 11, 12, 21, 22, 21, 22));
  EXPECT_THAT(received_rows_per_expert(input), ElementsAre(1, 1, 1, 1, 2, 2));
  const std::vector<Row> some = {{2, 1}, {1, 3}};
  const auto part = run_rows(input, layer, some);
  EXPECT_EQ(bf16_to_float(part[0]), 22.0F);
  EXPECT_EQ(bf16_to_float(part[kSize]), 12.0F);
}

TEST(Reference, NanStaysInItsRow) {
  const Problem p{.ranks = 1,
                  .experts = 4,
                  .top_k = 2,
                  .hidden = 256,
                  .intermediate = 128,
                  .max_tokens_per_rank = 8};
  const auto weights = random_layer(p, 1);
  const std::vector<int> counts = {5};
  RandomInputs inputs = random_inputs(p, counts, {}, 2);
  const auto clean = run(inputs.view(), weights.view());
  inputs.ranks[0].x[2 * 256 + 17] = std::byte{0x7f};
  const auto y = run(inputs.view(), weights.view());
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (i / 256 == 2) {
      EXPECT_TRUE(std::isnan(bf16_to_float(y[i]))) << i;
    } else {
      EXPECT_EQ(y[i], clean[i]) << i;
    }
  }
}

TEST(Reference, RefusesWhatDoesNotFit) {
  HandCase c(Precision::fp8);
  const auto reason = [&]() -> std::string {
    try {
      c.run();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(reason(), "accepted");
  c.weights.shape.hidden = 256;
  EXPECT_THAT(reason(), HasSubstr("routed weights of rank 0 are 2 x 256 x 128 fp8"));
  c.weights.shape.hidden = kSize;
  c.problem.shared_experts = 1;
  EXPECT_THAT(reason(), HasSubstr("1 shared experts"));
  c.problem.shared_experts = 0;
  c.problem.top_k = 3;
  EXPECT_THAT(reason(), HasSubstr("top_k = 3 is more than experts = 2"));
}

}  // namespace
}  // namespace megamoe::ref
