#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "numerics/activation.hpp"

namespace megamoe {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kMax = std::numeric_limits<float>::max();

const Activation kSwiglu{};
const Activation kClampedSwiglu{.clamp = 10.0F};
const Activation kOai = swiglu_oai();
const Activation kSitu{.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F};
const Activation kSituLinear{.kind = ActivationKind::situ, .beta = 4.0F};
const std::vector<Activation> kAll = {kSwiglu, kClampedSwiglu, kOai, kSitu, kSituLinear};

double both(const Activation& a, double g, double u) {
  const double wide = activate<StandardMath<double>>(a, g, u);
  const float narrow = activate(a, static_cast<float>(g), static_cast<float>(u));
  EXPECT_NEAR(static_cast<double>(narrow), wide, 1e-5 * (1 + std::abs(wide))) << g << " " << u;
  return wide;
}

TEST(Activation, ValuesByHand) {
  // silu(1) = 1 / (1 + e^-1) = 0.7310585786
  EXPECT_NEAR(both(kSwiglu, 1.0, 3.0), 3 * 0.7310585786, 1e-9);
  EXPECT_NEAR(both(kSwiglu, -1.0, 3.0), -3 * 0.2689414214, 1e-9);
  // The gate is clamped from above only, up on both sides: silu(10) = 9.9995460213.
  EXPECT_NEAR(both(kClampedSwiglu, 50.0, -30.0), -10 * 9.9995460213, 1e-7);
  EXPECT_NEAR(both(kClampedSwiglu, -20.0, 30.0), -10 * 4.1223072e-8, 1e-13);
  // sigmoid(1.702) = 0.8457957659
  EXPECT_NEAR(both(kOai, 1.0, 2.0), 0.8457957659 * 3, 1e-8);
  // g' = 7, sigmoid(11.914) = 0.9999933041, u' = -7
  EXPECT_NEAR(both(kOai, 9.0, -100.0), 7 * 0.9999933041 * -6, 1e-6);
  // 4 tanh(0.5) = 1.8484686290, sigmoid(2) = 0.8807970780, 25 tanh(0.2) = 4.9343830038
  EXPECT_NEAR(both(kSitu, 2.0, 5.0), 1.8484686290 * 0.8807970780 * 4.9343830038, 1e-8);
  EXPECT_NEAR(both(kSituLinear, 2.0, 5.0), 1.8484686290 * 0.8807970780 * 5, 1e-8);
}

TEST(Activation, InfiniteBetaIsTheLimit) {
  const Activation a{.kind = ActivationKind::situ, .beta = Activation::kNone};
  EXPECT_NEAR(both(a, 1.5, 2.0), both(kSwiglu, 1.5, 2.0), 1e-12);
}

TEST(Activation, FloatAgreesWithDouble) {
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal(0.0, 6.0);
  for (const Activation& a : kAll) {
    for (int i = 0; i < 20000; ++i) {
      const auto g = static_cast<float>(normal(random));
      const auto u = static_cast<float>(normal(random));
      const double wide = activate<StandardMath<double>>(a, g, u);
      const double narrow = activate(a, g, u);
      // exp adds the relative error of its argument (|alpha g| < 60 roundings of 2^-24) and each of
      // the handful of further operations half a unit; 64 * 2^-24 covers both.
      ASSERT_NEAR(narrow, wide, 64 * 0x1p-24 * std::abs(wide) + 1e-35) << g << " " << u;
    }
  }
}

TEST(Activation, FiniteForAnyFiniteInput) {
  const std::vector<float> values = {0.0F,   -0.0F,  0x1p-149F, -0x1p-149F, 1.0F,   -1.0F,
                                     87.0F,  -87.0F, -89.0F,    -104.0F,    -1e10F, 1e10F,
                                     -1e30F, 1e30F,  kMax,      -kMax};
  for (const Activation& a : kAll) {
    for (float g : values) {
      for (float u : values) {
        EXPECT_TRUE(std::isfinite(activate(a, g, u))) << name(a.kind) << " " << g << " " << u;
        const double wide = activate<StandardMath<double>>(a, g, u);
        EXPECT_TRUE(std::isfinite(static_cast<float>(wide))) << name(a.kind) << g << " " << u;
      }
    }
  }
  EXPECT_EQ(activate(kSwiglu, kMax, -kMax), -kMax);
}

TEST(Activation, NanPropagates) {
  for (const Activation& a : kAll) {
    for (float other : {0.0F, 1.0F, -100.0F, kMax}) {
      EXPECT_TRUE(std::isnan(activate(a, kNan, other)));
      EXPECT_TRUE(std::isnan(activate(a, other, kNan)));
      EXPECT_TRUE(std::isnan(activate<StandardMath<double>>(a, double{kNan}, double{other})));
    }
  }
}

}  // namespace
}  // namespace megamoe
