#include "cli/bench_weights.hpp"

#include <cmath>

#include "kernels/fill.hpp"

namespace megamoe::cli {
namespace {

/// The deviation of launch_fill_e4m3.
constexpr float kCodeDeviation = 100.0F;

float middle_scale(int cols) { return 1.0F / std::sqrt(static_cast<float>(cols)) / kCodeDeviation; }

}  // namespace

std::size_t RandomExperts::bytes(const Problem& p, int num_experts) {
  const ExpertBytes one = expert_bytes(p.precision, p.hidden, p.intermediate);
  return static_cast<std::size_t>(num_experts) * (one.w1 + one.w1_scales + one.w2 + one.w2_scales);
}

RandomExperts::RandomExperts(int device, const Problem& p, int num_experts, std::uint64_t seed) {
  const ExpertBytes one = expert_bytes(p.precision, p.hidden, p.intermediate);
  const auto experts = static_cast<std::size_t>(num_experts);
  const cuda::DeviceGuard guard(device);
  const cuda::PrivateStream stream;
  std::uint64_t part = 0;
  const auto codes = [&](std::size_t expert_bytes) {
    const std::size_t size = experts * expert_bytes;
    const auto& buffer = parts_.emplace_back(device, size);
    cuda::check(launch_fill_e4m3(buffer.data(), size, seed * 4 + part++, stream.get()), "weights");
    return buffer.data();
  };
  const auto scales = [&](std::size_t expert_bytes, int cols) {
    const std::size_t size = experts * expert_bytes;
    const auto& buffer = parts_.emplace_back(device, size);
    cuda::check(launch_fill_scales(reinterpret_cast<float*>(buffer.data()), size / sizeof(float),
                                   middle_scale(cols), seed * 4 + part++, stream.get()),
                "weight scales");
    return buffer.data();
  };
  view_ = {.precision = p.precision,
           .w1_order = W1Order::interleaved_8,
           .num_experts = num_experts,
           .hidden = p.hidden,
           .intermediate = p.intermediate};
  view_.w1 = codes(one.w1);
  view_.w1_scales = scales(one.w1_scales, p.hidden);
  view_.w2 = codes(one.w2);
  view_.w2_scales = scales(one.w2_scales, p.intermediate);
  cuda::check(cudaStreamSynchronize(stream.get()), "filling the weights");
}

}  // namespace megamoe::cli
