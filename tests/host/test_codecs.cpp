#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The value of a small float format with `exponent_bits` and `mantissa_bits`, from its definition.
double defined_value(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
  const unsigned mantissa = code & ((1U << mantissa_bits) - 1U);
  const unsigned exponent = (code >> mantissa_bits) & ((1U << exponent_bits) - 1U);
  const bool negative = (code >> (mantissa_bits + exponent_bits)) != 0;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
  return negative ? -magnitude : magnitude;
}

/// Nearest entry of the positive finite `table` (ascending, indexed by code), ties to the even
/// code, saturating: a search without any rounding of its own.
unsigned nearest(const std::vector<double>& table, double magnitude) {
  magnitude = std::min(magnitude, table.back());
  unsigned best = 0;
  for (unsigned code = 1; code < table.size(); ++code) {
    const double now = std::abs(table[code] - magnitude);
    const double before = std::abs(table[best] - magnitude);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

std::vector<double> positive_values(int exponent_bits, int mantissa_bits, int bias,
                                    unsigned count) {
  std::vector<double> table;
  for (unsigned code = 0; code < count; ++code)
    table.push_back(defined_value(code, exponent_bits, mantissa_bits, bias));
  return table;
}

/// Floats worth rounding: every midpoint of the table with its two neighbours, random bit patterns
/// and random values inside the range.
std::vector<float> rounding_inputs(const std::vector<double>& table, int random_count) {
  std::vector<float> inputs = {0.0F, 0x1p-149F, 0x1p-126F, std::numeric_limits<float>::max(), kInf};
  for (std::size_t i = 0; i + 1 < table.size(); ++i) {
    const auto middle = static_cast<float>((table[i] + table[i + 1]) / 2);
    for (float value : {static_cast<float>(table[i]), middle})
      inputs.insert(inputs.end(),
                    {value, std::nextafter(value, 0.0F), std::nextafter(value, kInf)});
  }
  inputs.push_back(static_cast<float>(table.back() * 1.03));
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-14.0, 10.0);
  for (int i = 0; i < random_count; ++i) {
    const auto bits = static_cast<std::uint32_t>(random()) & 0x7f7fffffU;
    inputs.push_back(std::bit_cast<float>(bits));
    inputs.push_back(static_cast<float>(std::exp2(exponent(random))));
  }
  return inputs;
}

TEST(E4m3, EveryCodeHasItsDefinedValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7fU) == 0x7fU) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), defined_value(code, 4, 3, 7)) << code;
    }
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(kE4m3Values[code]));
    EXPECT_EQ(float_to_e4m3(value), code == 0xffU ? 0x7fU : code);
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9F);
}

TEST(E4m3, RoundsAsTheTableSearch) {
  const auto table = positive_values(4, 3, 7, 127);
  for (float value : rounding_inputs(table, 500'000)) {
    const unsigned expected = nearest(table, static_cast<double>(value));
    ASSERT_EQ(float_to_e4m3(value), expected) << value;
    ASSERT_EQ(float_to_e4m3(-value), expected | 0x80U) << value;
  }
}

TEST(E4m3, NanHasOneCode) {
  EXPECT_EQ(float_to_e4m3(kNan), 0x7f);
  EXPECT_EQ(float_to_e4m3(-kNan), 0x7f);
  EXPECT_EQ(float_to_e4m3(std::bit_cast<float>(0x7f800001U)), 0x7f);
}

TEST(E2m1, EveryCodeHasItsDefinedValue) {
  for (unsigned code = 0; code < 16; ++code) {
    const float value = e2m1_to_float(static_cast<std::uint8_t>(code));
    EXPECT_EQ(static_cast<double>(value), defined_value(code, 2, 1, 1)) << code;
    EXPECT_EQ(std::signbit(value), code >= 8) << code;
    EXPECT_EQ(value, kE2m1Values[code]);
    EXPECT_EQ(float_to_e2m1(value), code);
    EXPECT_EQ(e4m3_to_float(e2m1_to_e4m3(static_cast<std::uint8_t>(code))), value);
  }
  EXPECT_EQ(e2m1_to_float(7), 6.0F);
}

TEST(E2m1, RoundsAsTheTableSearch) {
  const auto table = positive_values(2, 1, 1, 8);
  for (float value : rounding_inputs(table, 500'000)) {
    const unsigned expected = nearest(table, static_cast<double>(value));
    ASSERT_EQ(float_to_e2m1(value), expected) << value;
    ASSERT_EQ(float_to_e2m1(-value), expected | 8U) << value;
  }
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(Bf16, RoundsToTheNearestOfTheTwoNeighbours) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    auto bits = static_cast<std::uint32_t>(random()) & 0x7fffffffU;
    if (i % 4 == 0) bits = (bits & 0x7fff0000U) | 0x8000U;  // a tie
    if (bits >= 0x7f7f0000U) continue;                      // the last interval: tested below
    const float value = std::bit_cast<float>(bits);
    const auto low = static_cast<std::uint16_t>(bits >> 16);
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double below = static_cast<double>(value) - static_cast<double>(bf16_to_float(low));
    const double above = static_cast<double>(bf16_to_float(high)) - static_cast<double>(value);
    const bool up = above < below || (above == below && low % 2 == 1);
    ASSERT_EQ(float_to_bf16(value), up ? high : low) << value;
    ASSERT_EQ(float_to_bf16(-value), (up ? high : low) | 0x8000U) << value;
  }
}

TEST(Bf16, OverflowsToInfAndKeepsNan) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7f7f7fffU)), 0x7f7f);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7f7f8000U)), 0x7f80);
  EXPECT_EQ(float_to_bf16(-kInf), 0xff80);
  for (std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0x7fc00000U})
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(bits))))) << bits;
}

TEST(Ue8m0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(static_cast<double>(ue8m0_to_float(static_cast<std::uint8_t>(code))),
              std::ldexp(1.0, code - 127));
    EXPECT_EQ(ue8m0_from_exponent(code - 127), code);
  }
  EXPECT_TRUE(std::isnan(ue8m0_to_float(255)));
}

TEST(Ue8m0, ScaleExponentIsTheSmallestThatFits) {
  // The definition in exact arithmetic: m <= bound * 2^e and m > bound * 2^(e - 1).
  const auto check = [](float m, double bound, int exponent) {
    ASSERT_LE(static_cast<double>(m), std::ldexp(bound, exponent)) << m;
    ASSERT_GT(static_cast<double>(m), std::ldexp(bound, exponent - 1)) << m;
  };
  std::mt19937_64 random(3);
  for (int i = 0; i < 1'000'000; ++i) {
    float m = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7fffffffU);
    if (i % 3 == 0)
      m = std::ldexp(i % 2 == 0 ? 448.0F : 6.0F, static_cast<int>(random() % 200) - 90);
    if (i % 6 == 3) m = std::nextafter(m, kInf);
    if (!(m >= 0x1p-100F) || m == kInf) continue;
    check(m, 448.0, e4m3_scale_exponent(m));
    check(m, 6.0, e2m1_scale_exponent(m));
  }
}

}  // namespace
}  // namespace megamoe
