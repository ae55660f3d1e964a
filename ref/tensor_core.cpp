#include "ref/tensor_core.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "numerics/e4m3.hpp"
#include "numerics/quantize.hpp"

namespace megamoe::ref {
namespace {

/// Below every exponent of a product or an accumulator, and no sum of two overflows.
constexpr std::int16_t kZeroExponent = -8192;
constexpr std::int16_t kLeastNormalExponent = -6;

std::int16_t exponent_of_code(float value) {
  if (value == 0.0F) return kZeroExponent;
  return std::max(static_cast<std::int16_t>(std::ilogb(value)), kLeastNormalExponent);
}

struct CodeTable {
  float values[256];
  std::int16_t exponents[256];
  CodeTable() {
    for (std::size_t code = 0; code < 256; ++code) {
      values[code] = kE4m3Values[code];
      exponents[code] = std::isnan(values[code]) ? kZeroExponent : exponent_of_code(values[code]);
    }
  }
};

const CodeTable& code_table() {
  static const CodeTable table;
  return table;
}

/// Of a normal number.
int exponent_of(float value) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(value) >> 23U & 0xFFU) - 127;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U);
}

}  // namespace

TensorCoreRows::TensorCoreRows(std::size_t rows, std::size_t channels)
    : channels_(channels),
      values_(rows * channels),
      exponents_(rows * channels),
      scales_(rows * (channels / kScaleGroup)),
      nan_(rows) {}

void TensorCoreRows::set(std::size_t row, const std::byte* codes, const std::byte* scales) {
  const CodeTable& table = code_table();
  const std::size_t groups = channels_ / kScaleGroup;
  bool nan = false;
  for (std::size_t i = 0; i < channels_; ++i) {
    const auto code = std::to_integer<std::size_t>(codes[i]);
    values_[row * channels_ + i] = table.values[code];
    exponents_[row * channels_ + i] = table.exponents[code];
    nan = nan || std::isnan(table.values[code]);
  }
  nan_[row] = nan ? 1 : 0;
  std::memcpy(scales_.data() + row * groups, scales, groups * sizeof(float));
}

const float* TensorCoreRows::scales(std::size_t row) const {
  return scales_.data() + row * (channels_ / kScaleGroup);
}

float tensor_core_step(float accumulator, const float* a, const std::int16_t* a_exponents,
                       const float* b, const std::int16_t* b_exponents) {
  std::int16_t largest = kZeroExponent;
  for (std::size_t i = 0; i < kTensorCoreProducts; ++i) {
    largest = std::max(largest, static_cast<std::int16_t>(a_exponents[i] + b_exponents[i]));
  }
  int exponent = largest;
  if (accumulator != 0.0F) exponent = std::max(exponent, exponent_of(accumulator));
  if (exponent <= kZeroExponent / 2) return accumulator;  // nothing but zeros
  // Multiplied so, the conversion to an integer is the truncation.
  const float multiplier = power_of_two(kTensorCoreFractionBits - exponent);
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < kTensorCoreProducts; ++i) {
    sum += static_cast<std::int32_t>(a[i] * b[i] * multiplier);
  }
  sum += static_cast<std::int32_t>(accumulator * multiplier);
  auto magnitude = static_cast<std::uint32_t>(std::abs(sum));
  const int excess = static_cast<int>(std::bit_width(magnitude)) - (kTensorCoreFractionBits + 1);
  if (excess > 0) magnitude &= ~0U << static_cast<unsigned>(excess);
  const float kept =
      static_cast<float>(magnitude) * power_of_two(exponent - kTensorCoreFractionBits);
  return sum < 0 ? -kept : kept;
}

float tensor_core_dot(const TensorCoreRows& a, std::size_t i, const TensorCoreRows& b,
                      std::size_t j) {
  if (a.has_nan(i) || b.has_nan(j)) return std::numeric_limits<float>::quiet_NaN();
  float sum = 0.0F;
  for (std::size_t k = 0; k < a.channels(); k += kScaleGroup) {
    float partial = 0.0F;
    for (std::size_t step = k; step < k + kScaleGroup; step += kTensorCoreProducts) {
      partial = tensor_core_step(partial, a.values(i) + step, a.exponents(i) + step,
                                 b.values(j) + step, b.exponents(j) + step);
    }
    const std::size_t group = k / kScaleGroup;
    sum = std::fma(partial, a.scales(i)[group] * b.scales(j)[group], sum);
  }
  return sum;
}

}  // namespace megamoe::ref
