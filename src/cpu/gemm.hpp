#pragma once

#include <cstddef>
#include <vector>

#include "megamoe/problem.hpp"

namespace megamoe::cpu {

/// Rows of activations as they lie in a ring slot: codes [rows][channels], scales [channels /
/// group][scale_stride].
struct ActivationRows {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  int rows = 0;
  int scale_stride = 0;
  int channels = 0;  ///< K
};

/// Consecutive rows of one expert's weight matrix [.., K].
struct WeightRows {
  const std::byte* codes = nullptr;   ///< of the first row
  const std::byte* scales = nullptr;  ///< mxfp4: of the first row, [rows][K / 32]
  /// fp8: one FP32 scale per K / 128 for rows whose index & 8 is 0, and for the others.
  const float* block_scales[2] = {nullptr, nullptr};
  int rows = 0;
};

/// Products of dequantised tiles, 128 channels of K at a time. Scratch memory is kept between
/// calls, so one object serves one thread.
class TileGemm {
 public:
  explicit TileGemm(Precision precision) : precision_(precision) {}

  /// out [activations.rows][weights.rows] = activations x weights^T in FP32: at most 128 products
  /// along K are added up before both FP32 scales are applied and the result joins the sum. The
  /// order of additions depends on the shapes only.
  void multiply(const ActivationRows& activations, const WeightRows& weights, float* out);

 private:
  void load_activations(const ActivationRows& a, int k_block);
  void load_weights(const WeightRows& w, int channels, int k_block);

  Precision precision_;
  std::vector<float> a_;        // [rows][128]
  std::vector<float> w_;        // [weight rows][128]
  std::vector<float> partial_;  // [rows][weight rows]
};

}  // namespace megamoe::cpu
