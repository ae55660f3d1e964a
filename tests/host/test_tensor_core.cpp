// The model of the FP8 tensor core's sums, and the bounds on GPUs that come from it.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "numerics/e4m3.hpp"
#include "ref/gpu_bounds.hpp"
#include "ref/random_case.hpp"
#include "ref/tensor_core.hpp"
#include "tests/support/error_of.hpp"

namespace megamoe::ref {
namespace {

using ::testing::HasSubstr;

/// A row of 128 channels, zero but for these codes' values, with scale 1.
void set_row(TensorCoreRows& rows, std::size_t row, const std::vector<float>& values,
             float scale = 1.0F) {
  std::vector<std::byte> codes(rows.channels());
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = std::byte{float_to_e4m3(values[i])};
  const std::vector<float> scales(rows.channels() / 128, scale);
  rows.set(row, codes.data(), std::as_bytes(std::span(scales)).data());
}

/// accumulator + sum of a[i] * b[i] by one instruction.
float step(float accumulator, const std::vector<float>& a, const std::vector<float>& b) {
  TensorCoreRows rows(2, 128);
  set_row(rows, 0, a);
  set_row(rows, 1, b);
  return tensor_core_step(accumulator, rows.values(0), rows.exponents(0), rows.values(1),
                          rows.exponents(1));
}

TEST(TensorCore, AddsExactlyWhatFits) {
  EXPECT_EQ(step(0, {1, 2, -3}, {4, 0.5F, 1.5F}), 4 + 1 - 4.5F);
  EXPECT_EQ(step(0, {}, {}), 0.0F);
  EXPECT_EQ(step(5.25F, {}, {}), 5.25F);
  EXPECT_EQ(step(-1, {1}, {1}), 0.0F);
  EXPECT_EQ(step(0, {448, -448}, {448, 448}), 0.0F);
}

TEST(TensorCore, TruncatesEveryTermTowardsZeroAt13BitsBelowTheLargestExponent) {
  // 1 * 2^-13 is kept beside 1, half of it is not, of either sign
  EXPECT_EQ(step(1, {0x1p-6F}, {0x1p-7F}), 1 + 0x1p-13F);
  EXPECT_EQ(step(1, {0x1p-6F}, {0x1p-8F}), 1.0F);
  EXPECT_EQ(step(1, {-0x1p-6F}, {0x1p-8F}), 1.0F);
  // each is lost on its own, although two would have been enough
  EXPECT_EQ(step(1, {0x1p-6F, 0x1p-6F}, {0x1p-8F, 0x1p-8F}), 1.0F);
  EXPECT_EQ(step(1, {0x1p-6F}, {1.5F * 0x1p-7F}), 1 + 0x1p-13F);
  // the accumulator loses its bits too
  EXPECT_EQ(step(1 + 0x1p-13F, {2}, {1}), 3.0F);
}

TEST(TensorCore, AProductsExponentIsTheSumOfItsFactors) {
  // 1.75 * 1.75 > 2 counts as exponent 0: 2^-13 stays
  EXPECT_EQ(step(0, {1.75F, 0x1p-6F, -1.75F}, {1.75F, 0x1p-7F, 1.75F}), 0x1p-13F);
  // subnormal codes count as 2^-6: 2^-9 * 1 has exponent -6, and 2^-19 is kept
  EXPECT_EQ(step(0, {0x1p-9F, 0x1p-9F, -0x1p-9F}, {1, 0x1p-9F, 1}), 0x1p-18F);
  // zeros have no exponent, whatever they are multiplied with
  EXPECT_EQ(step(0, {0, 0x1p-6F}, {448, 0x1p-6F}), 0x1p-12F);
}

TEST(TensorCore, TheSumKeeps13FractionBits) {
  // 3 * 448 * 448 = 602112 = 2^19 * 1.148...; its own exponent decides, towards zero
  const float largest = step(0, {448, 448, 448, 13}, {448, 448, 448, 1});
  EXPECT_EQ(largest, 3.0F * 448 * 448);
  EXPECT_EQ(step(0, {1.875F, 1.875F, 0x1p-6F}, {1.875F, 1.875F, 0x1p-7F}), 7.03125F);
  EXPECT_EQ(step(0, {-1.875F, -1.875F, -0x1p-6F}, {1.875F, 1.875F, 0x1p-7F}), -7.03125F);
}

TEST(TensorCore, BlocksOf128AreAddedInFp32WithTheirScales) {
  TensorCoreRows a(1, 256), b(1, 256);
  std::vector<float> x(256), w(256);
  x[0] = 1;     // a block on its own: 1
  x[128] = 16;  // the next has its own largest exponent
  x[129] = 0x1p-6F;
  w[0] = w[128] = w[129] = 1;
  set_row(a, 0, x, 0.5F);
  set_row(b, 0, w, 3.0F);
  EXPECT_EQ(tensor_core_dot(a, 0, b, 0), 1.5F + 1.5F * (16 + 0x1p-6F));
  x[200] = std::numeric_limits<float>::quiet_NaN();
  set_row(a, 0, x);
  EXPECT_TRUE(std::isnan(tensor_core_dot(a, 0, b, 0)));
}

struct Case {
  Problem problem;
  RandomInputs inputs;
  OwnedLayerWeights weights;
  std::vector<Row> rows;

  Case(const Problem& p, int tokens, const Routing& routing, std::uint64_t seed)
      : problem(p),
        inputs(random_inputs(p, std::vector<int>(static_cast<std::size_t>(p.ranks), tokens),
                             routing, seed)),
        weights(random_layer(p, 7)),
        rows(all_rows(inputs.view())) {}
  [[nodiscard]] TensorCoreOutput model() const {
    return run_rows_on_tensor_core(inputs.view(), weights.view(), rows, 2);
  }
  [[nodiscard]] std::vector<std::uint16_t> exact() const {
    return run_rows(inputs.view(), weights.view(), rows, 2);
  }
};

Problem small_problem(int ranks, int experts, int top_k, int hidden, int intermediate) {
  return {.ranks = ranks,
          .experts = experts,
          .top_k = top_k,
          .hidden = hidden,
          .intermediate = intermediate,
          .max_tokens_per_rank = 200};
}

/// What the fused kernel gave for these cases on an H200, for every block size and family alike;
/// docs/adr/0006-fp8-accumulation.md has the command.
struct Measured {
  Problem problem;
  int tokens;
  Routing routing;
  std::uint64_t seed;
  double diff;  ///< 0: not noted
  double worst_row;
  int row;
};

TEST(TensorCore, GivesWhatAnH200Gave) {
  const Measured cases[] = {
      {small_problem(4, 48, 1, 256, 128), 33, {RoutingKind::uniform}, 4, 0, 0.0294448, 25},
      {small_problem(1, 48, 6, 256, 128), 192, {RoutingKind::uniform}, 1, 0, 0.0203956, 113},
      {small_problem(2, 48, 6, 256, 128), 192, {RoutingKind::uniform}, 1, 0, 0.0262217, 283},
      {small_problem(2, 48, 6, 256, 128), 150, {RoutingKind::uniform}, 8, 0, 0.0220258, 42},
      {small_problem(8, 48, 6, 256, 128), 130, {RoutingKind::one_expert}, 5, 0, 0.0313976, 304},
      {small_problem(8, 48, 6, 256, 128), 130, {RoutingKind::balanced}, 5, 0, 0.0361922, 294},
      {small_problem(2, 12, 4, 256, 128), 5, {RoutingKind::uniform}, 3, 6.27382e-5, 0, 0},
      {small_problem(2, 8, 3, 640, 128), 90, {RoutingKind::masked, 0.1}, 6, 0, 0.0208866, 28},
      {small_problem(2, 8, 3, 640, 768), 90, {RoutingKind::masked, 0.1}, 6, 3.2492e-5, 0, 0},
      {small_problem(2, 8, 3, 3584, 128), 90, {RoutingKind::masked, 0.1}, 6, 0, 0.0300746, 30},
  };
  for (const Measured& m : cases) {
    const Case c(m.problem, m.tokens, m.routing, m.seed);
    const Difference d = compare(c.model().y, c.exact(), c.problem.hidden);
    // six digits were printed
    if (m.diff > 0) {
      EXPECT_NEAR(d.diff / m.diff, 1, 5e-6) << c.problem.hidden;
    }
    if (m.worst_row > 0) {
      EXPECT_NEAR(d.worst_row_relative_l2 / m.worst_row, 1, 5e-6) << c.problem.hidden;
      EXPECT_EQ(d.worst_row, m.row) << c.problem.hidden;
    }
  }
}

TEST(GpuBounds, HoldForTheModelItselfAndFollowTheCase) {
  const Case c(small_problem(2, 8, 3, 640, 256), 40, {RoutingKind::masked, 0.2}, 2);
  const TensorCoreOutput model = c.model();
  const GpuCheck check = check_gpu(model.y, c.inputs.view(), c.weights.view(), c.rows, 2);
  EXPECT_TRUE(check.ok()) << text(check);
  EXPECT_EQ(check.agreement.diff, 0);
  EXPECT_EQ(check.agreement.worst_row_of_allowed, 0);
  EXPECT_GT(check.difference.diff, 0);
  EXPECT_LT(check.bounds.diff, 2 * check.difference.diff + 1e-5);
  EXPECT_LT(check.bounds.worst_row, check.difference.worst_row_relative_l2 + 2e-2);
  // the reference itself is not what this hardware gives
  EXPECT_FALSE(agree(c.exact(), model, c.problem.hidden).ok());
}

TEST(GpuBounds, AWrongScaleOfXIsFoundInItsRow) {
  const Case c(small_problem(1, 4, 2, 256, 256), 20, {RoutingKind::uniform}, 3);
  const TensorCoreOutput model = c.model();
  Case broken = c;
  // one scale of x of one token is one part in 64 too large
  float scale = 0;
  std::byte* const at = broken.inputs.ranks[0].x_scales.data() + 7 * 2 * sizeof(float);
  std::memcpy(&scale, at, sizeof scale);
  scale *= 1 + 1.0F / 64;
  std::memcpy(at, &scale, sizeof scale);
  const Agreement agreement = agree(broken.model().y, model, c.problem.hidden);
  EXPECT_FALSE(agreement.ok());
  EXPECT_EQ(agreement.worst_row, 7);
  EXPECT_GT(agreement.worst_row_of_allowed, 1);
}

TEST(GpuBounds, AColumnOfW2OffByOneExponentIsFoundAndFewRowsAreDoubtful) {
  const Case c(small_problem(1, 4, 1, 256, 128), 64, {RoutingKind::uniform}, 4);
  const TensorCoreOutput model = c.model();
  std::size_t doubtful = 0;
  for (const double doubt : model.doubt) doubtful += doubt > 0 ? 1U : 0U;
  EXPECT_LT(doubtful, c.rows.size() / 8);
  // an element of w2 changed by one code changes one channel of y in the rows of its expert
  Case broken = c;
  for (std::size_t channel = 0; channel < 256; ++channel)
    broken.weights.routed[0].w2[channel * 128 + 5] ^= std::byte{0x08};
  EXPECT_FALSE(agree(broken.model().y, model, c.problem.hidden).ok());
}

TEST(GpuBounds, NothingAcceptsNaNWhereTheModelIsFiniteOrAnotherSize) {
  const Case c(small_problem(1, 4, 2, 128, 128), 4, {RoutingKind::uniform}, 5);
  const TensorCoreOutput model = c.model();
  std::vector<std::uint16_t> y = model.y;
  y[130] = 0x7fc0;
  const Agreement agreement = agree(y, model, 128);
  EXPECT_FALSE(agreement.ok());
  EXPECT_EQ(agreement.worst_row, 1);
  y.pop_back();
  EXPECT_THAT(error_of([&] { agree(y, model, 128); }), HasSubstr("511"));
}

TEST(GpuBounds, AWrongModelLetsNothingPassThatIsFarFromTheReference) {
  const Case c(small_problem(1, 4, 2, 128, 128), 64, {RoutingKind::uniform}, 5);
  const std::vector<std::uint16_t> exact = c.exact();
  const TensorCoreOutput right = c.model();
  const Bounds most = most_on_gpu(c.rows.size());
  EXPECT_LT(most.diff, 1e-3);
  EXPECT_LT(most_on_gpu(1).diff, 0.05);
  const Bounds tight = bounds_on_gpu(right, exact, 128);
  EXPECT_LT(tight.diff, most.diff / 2);
  EXPECT_LT(tight.worst_row, most.worst_row / 2);

  TensorCoreOutput garbage = right;
  for (std::uint16_t& value : garbage.y) value = static_cast<std::uint16_t>(value ^ 0x8000U);
  TensorCoreOutput doubtful = right;
  for (double& doubt : doubtful.doubt) doubt = 1e30;
  TensorCoreOutput undefined = right;
  for (double& doubt : undefined.doubt) doubt = std::numeric_limits<double>::quiet_NaN();
  for (const TensorCoreOutput& model : {garbage, doubtful, undefined}) {
    const Bounds bounds = bounds_on_gpu(model, exact, 128);
    EXPECT_LE(bounds.diff, most.diff);
    EXPECT_LE(bounds.worst_row, most.worst_row);
    const GpuCheck check = {agree(garbage.y, model, 128), compare(garbage.y, exact, 128), bounds};
    EXPECT_FALSE(check.ok());
  }
}

TEST(GpuBounds, NanOfATokenIsExpectedInItsRow) {
  Case c(small_problem(1, 4, 2, 128, 128), 4, {RoutingKind::uniform}, 5);
  RankTokens& tokens = c.inputs.ranks[0];
  tokens.hidden_states[128 + 9] = 0x7fc0;
  tokens.hidden_states[2 * 128 + 9] = 0x7f80;
  tokens = stage_tokens(c.problem, tokens.hidden_states, tokens.topk_idx, tokens.topk_weights);
  const TensorCoreOutput model = c.model();
  std::vector<std::uint16_t> y = model.y;
  EXPECT_TRUE(agree(y, model, 128).ok());
  const Difference d = compare(y, c.exact(), 128);
  EXPECT_EQ(d.same_non_finite, 2 * 128);
  const Bounds bounds = bounds_on_gpu(model, c.exact(), 128);
  EXPECT_LE(d.diff, bounds.diff);
  EXPECT_LE(d.worst_row_relative_l2, bounds.worst_row);
  EXPECT_LT(bounds.diff, 1e-3);
  y[128 + 5] = 0;
  EXPECT_FALSE(agree(y, model, 128).ok());
  EXPECT_EQ(agree(y, model, 128).worst_row, 1);
}

TEST(GpuBounds, OtherPrecisionsHaveNoModel) {
  Problem p = small_problem(1, 4, 2, 128, 128);
  p.precision = Precision::bf16;
  const Case c(p, 2, {RoutingKind::uniform}, 6);
  EXPECT_THAT(error_of([&] { static_cast<void>(c.model()); }), HasSubstr("bf16"));
}

}  // namespace
}  // namespace megamoe::ref
