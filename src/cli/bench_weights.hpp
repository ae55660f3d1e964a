#pragma once

#include <vector>

#include "host/cuda/runtime.hpp"
#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"

namespace megamoe::cli {

/// FP8 expert weights on one GPU, random codes and scales: products of unit values have a deviation
/// of about 1.
class RandomExperts {
 public:
  RandomExperts(int device, const Problem& problem, int num_experts, std::uint64_t seed);
  [[nodiscard]] const ExpertTensors& view() const { return view_; }

  /// Bytes that one takes.
  static std::size_t bytes(const Problem& problem, int num_experts);

 private:
  std::vector<cuda::DeviceBuffer> parts_;
  ExpertTensors view_;
};

}  // namespace megamoe::cli
