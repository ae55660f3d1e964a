#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// How Hopper's tensor core adds e4m3 products (wgmma with K = 32 and FP32 accumulators), bit for
// bit: the facts are in docs/adr/0006-fp8-accumulation.md.
//
//   One instruction adds 33 terms: the accumulator and 32 products. A product's exponent is the sum
//   of its factors' (its significand, 1 to 4, is not normalised first); the largest exponent E of
//   the 33 is found, zeros left out; every term is truncated towards zero to a multiple of
//   2^(E - 13); these are added exactly; the sum is truncated towards zero to 13 fraction bits.

namespace megamoe::ref {

/// Fraction bits that terms and sum keep.
inline constexpr int kTensorCoreFractionBits = 13;
/// Products that one instruction adds.
inline constexpr std::size_t kTensorCoreProducts = 32;

/// How far, relatively, two right implementations of the activation in FP32 may be apart. Host: exp
/// and a sum within 2 ulp, a division and a product within 1/2 each. Device: the hardware's
/// exponential of a rounded argument, abs(g) * 2^-24, which matters up to g = -16 (beyond, h is
/// below half of the least code of a group whose largest element is 1); its reciprocal and two
/// products, 3 ulp. The multiplier 448 / m of the group carries the error of its largest element
/// on, and its own rounding.
inline constexpr float kActivationError = 0x1p-19F;

/// Rows of e4m3 codes with one FP32 scale per 128 channels, taken apart for `tensor_core_dot`.
class TensorCoreRows {
 public:
  TensorCoreRows(std::size_t rows, std::size_t channels);

  /// Sets row `row`: codes [channels], scales [channels / 128].
  void set(std::size_t row, const std::byte* codes, const std::byte* scales);

  [[nodiscard]] std::size_t channels() const { return channels_; }
  [[nodiscard]] const float* values(std::size_t row) const {
    return values_.data() + row * channels_;
  }
  /// Of each value: that of its leading bit, -6 for subnormal codes, very low for zeros.
  [[nodiscard]] const std::int16_t* exponents(std::size_t row) const {
    return exponents_.data() + row * channels_;
  }
  [[nodiscard]] const float* scales(std::size_t row) const;
  /// Whether a code of the row is NaN.
  [[nodiscard]] bool has_nan(std::size_t row) const { return nan_[row] != 0; }

 private:
  std::size_t channels_;
  std::vector<float> values_;
  std::vector<std::int16_t> exponents_;
  std::vector<float> scales_;
  std::vector<char> nan_;
};

/// One instruction: accumulator + the products of 32 values, which are not NaN.
float tensor_core_step(float accumulator, const float* a, const std::int16_t* a_exponents,
                       const float* b, const std::int16_t* b_exponents);

/// Row i of `a` times row j of `b` as the kernels compute it: the 128 channels of a block inside
/// the tensor core, then an FP32 fused multiply-add with the product of both scales. NaN when a
/// code of either row is NaN.
float tensor_core_dot(const TensorCoreRows& a, std::size_t i, const TensorCoreRows& b,
                      std::size_t j);

}  // namespace megamoe::ref
