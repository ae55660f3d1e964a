#pragma once

#include <cstddef>
#include <vector>

#include "host/cuda/runtime.hpp"
#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"

namespace megamoe::cli::unfused {

/// Groups of 128 channels, rounded up to the stride that cuBLASLt wants between rows of scales.
constexpr int scale_stride(int channels) { return (channels / 128 + 3) / 4 * 4; }

/// Expert weights as cuBLASLt takes them: w1 with all gate rows before the up rows, scales of
/// 128x128 blocks with padded rows. Copied from tensors in the kernel's order on the same GPU, but
/// w2, which is the same.
class LibraryWeights {
 public:
  /// `from`: fp8, W1Order::interleaved_8, in memory of `device`.
  LibraryWeights(int device, const ExpertTensors& from);

  [[nodiscard]] const std::byte* w1(int expert) const;     ///< [2 * intermediate][hidden]
  [[nodiscard]] const float* w1_scales(int expert) const;  ///< [2I / 128][scale_stride(hidden)]
  [[nodiscard]] const std::byte* w2(int expert) const;     ///< [hidden][intermediate]
  [[nodiscard]] const float* w2_scales(int expert) const;  ///< [H / 128][scale_stride(I)]

  /// Bytes that one allocates.
  static std::size_t bytes(const Problem& problem, int num_experts);

 private:
  ExpertTensors from_;
  cuda::DeviceBuffer w1_, w1_scales_, w2_scales_;
};

}  // namespace megamoe::cli::unfused
