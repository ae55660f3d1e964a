#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "numerics/quantize.hpp"
#include "numerics/quantize_weights.hpp"

namespace megamoe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Group = std::array<float, kScaleGroup>;
using Codes = std::array<std::uint8_t, kScaleGroup>;

TEST(Quantize, FollowsTheFormulaByHand) {
  Group x{};
  x[0] = 14.0F;       // amax: scale = 14 / 448 = 1/32, multiplier 32
  x[1] = -1.0F;       // -32
  x[2] = 0.59375F;    // 19: between 18 and 20, a tie; the even code is 20 = 2^4 * 1.25 (mantissa 2)
  x[3] = 0.53125F;    // 17: between 16 and 18, a tie; the even code is 16
  x[127] = 0x1p-14F;  // 2^-9, the smallest subnormal
  Codes codes{};
  EXPECT_EQ(quantize_group(x.data(), kScaleGroup, codes.data()), 1.0F / 32);
  EXPECT_EQ(codes[0], 0x7e);
  EXPECT_EQ(e4m3_to_float(codes[1]), -32.0F);
  EXPECT_EQ(e4m3_to_float(codes[2]), 20.0F);
  EXPECT_EQ(e4m3_to_float(codes[3]), 16.0F);
  EXPECT_EQ(codes[4], 0);
  EXPECT_EQ(codes[127], 1);
}

TEST(Quantize, TheScaleIsContinuous) {
  Group x{};
  x[5] = 3.0F;
  Codes codes{};
  EXPECT_EQ(quantize_group(x.data(), kScaleGroup, codes.data()), 3.0F / 448.0F);
  EXPECT_EQ(codes[5], 0x7e);
}

TEST(Quantize, ZeroAndSubnormalGroupsStayFinite) {
  for (float value : {0.0F, -0.0F, 0x1p-149F, 0x1p-126F, 6e-38F, 0x1p-101F, 0x1p-100F}) {
    Group x{};
    x.fill(value);
    Codes codes{};
    const float scale = quantize_group(x.data(), kScaleGroup, codes.data());
    EXPECT_EQ(scale, 0x1p-100F / 448.0F);
    EXPECT_NEAR(e4m3_to_float(codes[0]) * scale, value, 0x1p-109F);
    std::uint8_t mx = quantize_mx_group(x.data(), kMxScaleGroup, codes.data());
    EXPECT_EQ(mx, 127 - 108);
    EXPECT_NEAR(e4m3_to_float(codes[0]) * ue8m0_to_float(mx), value, 0x1p-109F);
  }
}

TEST(Quantize, FiniteInputGivesFiniteOutput) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 5000; ++round) {
    Group x{};
    for (float& v : x) {
      v = bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (!std::isfinite(v)) v = std::numeric_limits<float>::max();
    }
    Codes codes{};
    const float scale = quantize_group(x.data(), kScaleGroup, codes.data());
    ASSERT_TRUE(std::isfinite(scale) && scale > 0);
    for (int i = 0; i < kScaleGroup; ++i) {
      const double back = static_cast<double>(e4m3_to_float(codes[i])) * static_cast<double>(scale);
      // Half a unit of the 3-bit mantissa, or half of the smallest subnormal.
      const double bound =
          std::max(std::abs(static_cast<double>(x[i])) / 16, static_cast<double>(scale) * 0x1p-10);
      ASSERT_LE(std::abs(back - static_cast<double>(x[i])), bound * 1.0001) << x[i];
    }
    const std::uint8_t mx = quantize_mx_group(x.data(), kMxScaleGroup, codes.data());
    ASSERT_NE(mx, kUe8m0Nan);
    for (int i = 0; i < kMxScaleGroup; ++i) ASSERT_NE(codes[i] & 0x7f, 0x7f);
  }
}

TEST(Quantize, NanStaysInItsElement) {
  Group x{};
  x.fill(1.0F);
  Codes clean{};
  const float scale = quantize_group(x.data(), kScaleGroup, clean.data());
  x[7] = kNan;
  Codes codes{};
  EXPECT_EQ(quantize_group(x.data(), kScaleGroup, codes.data()), scale);
  for (int i = 0; i < kScaleGroup; ++i) EXPECT_EQ(codes[i], i == 7 ? 0x7f : clean[i]) << i;
  EXPECT_EQ(quantize_mx_group(x.data(), kMxScaleGroup, codes.data()), 127 - 8);
  EXPECT_EQ(codes[7], 0x7f);
}

TEST(Quantize, AllNanHasAFiniteScale) {
  Group x{};
  x.fill(kNan);
  Codes codes{};
  EXPECT_EQ(quantize_group(x.data(), kScaleGroup, codes.data()), 0x1p-100F / 448.0F);
  for (std::uint8_t code : codes) EXPECT_EQ(code & 0x7f, 0x7f);
}

TEST(Quantize, InfMakesItsOwnGroupNan) {
  for (float inf : {kInf, -kInf}) {
    Group x{};
    x.fill(1.0F);
    x[3] = inf;
    Codes codes{};
    const float scale = quantize_group(x.data(), kScaleGroup, codes.data());
    for (std::uint8_t code : codes) EXPECT_TRUE(std::isnan(e4m3_to_float(code) * scale));
    const std::uint8_t mx = quantize_mx_group(x.data(), kMxScaleGroup, codes.data());
    EXPECT_EQ(mx, kUe8m0Nan);
    EXPECT_EQ(codes[3] & 0x7f, 0x7f);
  }
  std::vector<float> row(256, 1.0F);
  row[0] = kInf;
  std::vector<std::uint8_t> codes(256);
  std::vector<float> scales(2);
  quantize_row(row.data(), 256, codes.data(), scales.data());
  EXPECT_EQ(scales[1], 1.0F / 448.0F);
}

TEST(Quantize, MxScaleIsAPowerOfTwoThatFits) {
  std::array<float, 64> x{};
  x[0] = 448.0F;                         // exactly 1
  x[32] = std::nextafter(448.0F, kInf);  // just above: 2
  std::array<std::uint8_t, 64> codes{};
  std::array<std::uint8_t, 2> scales{};
  quantize_mx_row(x.data(), 64, codes.data(), scales.data());
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(scales[1], 128);
  EXPECT_EQ(e4m3_to_float(codes[0]), 448.0F);
  EXPECT_EQ(e4m3_to_float(codes[32]), 224.0F);
}

TEST(QuantizeWeights, EachBlockHasItsOwnScale) {
  const int rows = 256;
  const int cols = 384;
  std::vector<std::uint16_t> w(static_cast<std::size_t>(rows) * cols);
  std::vector<float> wf(w.size());
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = float_to_bf16(normal(random));
    wf[i] = bf16_to_float(w[i]);
  }
  std::vector<std::uint8_t> codes(w.size());
  std::vector<std::uint8_t> codes_f(w.size());
  std::vector<float> scales(6);
  std::vector<float> scales_f(6);
  quantize_weights_fp8(w.data(), rows, cols, codes.data(), scales.data());
  quantize_weights_fp8(wf.data(), rows, cols, codes_f.data(), scales_f.data());
  EXPECT_EQ(codes, codes_f);
  EXPECT_EQ(scales, scales_f);
  for (int block = 0; block < 6; ++block) {
    const int r0 = block / 3 * 128;
    const int c0 = block % 3 * 128;
    float amax = 0;
    for (int r = r0; r < r0 + 128; ++r) {
      for (int c = c0; c < c0 + 128; ++c) {
        const std::size_t i = static_cast<std::size_t>(r) * cols + static_cast<std::size_t>(c);
        amax = std::max(amax, std::abs(wf[i]));
        EXPECT_NEAR(e4m3_to_float(codes[i]) * scales[block], wf[i],
                    std::max(std::abs(wf[i]) / 15.9F, scales[block] / 1000));
      }
    }
    EXPECT_EQ(scales[block], amax / 448.0F);
  }
}

TEST(QuantizeWeights, Mxfp4PacksLowNibbleFirst) {
  std::array<float, 64> w{};
  w[0] = 6.0F;
  w[1] = -0.5F;
  w[31] = 5.0F;   // a tie of 4 and 6: the even code is 4
  w[32] = -7.0F;  // above 6: scale 2, so -3.5, a tie of 3 and 4: the even code is 4
  std::array<std::uint8_t, 32> packed{};
  std::array<std::uint8_t, 2> scales{};
  quantize_weights_mxfp4(w.data(), w.size(), packed.data(), scales.data());
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(scales[1], 128);
  EXPECT_EQ(packed[0], 0x97);   // 6 = 0b0111 low, -0.5 = 0b1001 high
  EXPECT_EQ(packed[15], 0x60);  // w[30] = 0 low, 4 = 0b0110 high
  EXPECT_EQ(packed[16], 0x0e);  // -4 = 0b1110 low
}

TEST(QuantizeWeights, Mxfp4SurvivesZeroSubnormalAndHuge) {
  for (float value : {0.0F, 0x1p-149F, std::numeric_limits<float>::max()}) {
    std::array<float, 32> w{};
    w.fill(value);
    std::array<std::uint8_t, 16> packed{};
    std::uint8_t scale = 0;
    quantize_weights_mxfp4(w.data(), w.size(), packed.data(), &scale);
    const double back =
        static_cast<double>(e2m1_to_float(packed[0])) * std::ldexp(1.0, scale - 127);
    EXPECT_NEAR(back, static_cast<double>(value), static_cast<double>(value) / 4 + 0x1p-103);
  }
}

}  // namespace
}  // namespace megamoe
