#include "cli/gpu_run.hpp"

#include <algorithm>
#include <span>

namespace megamoe::cli {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceGuard;

/// A copy of `bytes` bytes on a device.
DeviceBuffer copied(int device, const void* from, std::size_t bytes) {
  DeviceBuffer buffer(device, bytes);
  if (bytes == 0) return buffer;
  cuda::check(cudaMemcpy(buffer.data(), from, bytes, cudaMemcpyDefault), "copying to the GPU");
  // Pageable memory may still be on its way when the copy returns.
  cuda::check(cudaStreamSynchronize(nullptr), "copying to the GPU");
  return buffer;
}

/// Expert tensors on a device.
struct GpuExperts {
  GpuExperts(int device, const ExpertTensors& from) : view(from) {
    const ExpertBytes bytes = expert_bytes(from.precision, from.hidden, from.intermediate);
    const auto copy = [&](const std::byte* tensor, std::size_t expert) {
      parts.push_back(copied(device, tensor, expert * static_cast<std::size_t>(from.num_experts)));
      return parts.back().data();
    };
    view.w1 = copy(from.w1, bytes.w1);
    view.w1_scales = copy(from.w1_scales, bytes.w1_scales);
    view.w2 = copy(from.w2, bytes.w2);
    view.w2_scales = copy(from.w2_scales, bytes.w2_scales);
  }
  std::vector<DeviceBuffer> parts;
  ExpertTensors view;
};

}  // namespace

/// What one rank's calls use on its GPU. Made with the device current.
struct GpuRank {
  GpuRank(int device_index, const RunCase& run, std::size_t rank)
      : device(device_index),
        tokens(&run.tokens[rank]),
        routed(device, run.weights.routed[rank]),
        hidden_states(copied(device, tokens->hidden_states.data(),
                             tokens->hidden_states.size() * sizeof(std::uint16_t))),
        ids(copied(device, tokens->topk_idx.data(),
                   tokens->topk_idx.size() * sizeof(std::int64_t))),
        weights(copied(device, tokens->topk_weights.data(),
                       tokens->topk_weights.size() * sizeof(float))),
        y_bytes(tokens->hidden_states.size() * sizeof(std::uint16_t)),
        y(device, y_bytes) {
    if (!run.weights.shared.empty()) {
      shared = std::make_unique<GpuExperts>(device, run.weights.shared[rank]);
    }
  }
  [[nodiscard]] std::uint16_t* y_data() const { return reinterpret_cast<std::uint16_t*>(y.data()); }
  [[nodiscard]] RankCall call() const {
    return {.y = y_data(),
            .num_tokens = tokens->num_tokens,
            .weights = &routed.view,
            .shared = shared ? &shared->view : nullptr};
  }
  void stage(Layer& layer, cudaStream_t on) const {
    layer.stage(
        reinterpret_cast<const std::uint16_t*>(hidden_states.data()),
        std::span(reinterpret_cast<const std::int64_t*>(ids.data()), tokens->topk_idx.size()),
        std::span(reinterpret_cast<const float*>(weights.data()), tokens->topk_weights.size()),
        tokens->num_tokens, 1.0F, on);
  }

  int device;
  const ref::RankTokens* tokens;
  GpuExperts routed;
  std::unique_ptr<GpuExperts> shared;
  DeviceBuffer hidden_states, ids, weights;
  std::size_t y_bytes;
  DeviceBuffer y;
  cuda::PrivateStream stream;
  cuda::Event begin, end;
};

GpuRun::GpuRun(const RunCase& run, std::unique_ptr<SymmetricMemory> memory)
    : one_launch_(memory->one_launch()) {
  const std::vector<int> devices = memory->devices();
  group_ = std::make_unique<Group>(run.problem(), std::move(memory));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DeviceGuard guard(devices[i]);
    Layer& layer = group_->layer(static_cast<int>(i));
    ranks_.push_back(
        std::make_unique<GpuRank>(devices[i], run, static_cast<std::size_t>(layer.rank())));
    ranks_.back()->stage(layer, stream(i));
  }
}

GpuRun::~GpuRun() = default;

double GpuRun::call(const ForwardOptions& options) {
  std::vector<RankCall> calls;
  std::vector<Stream> streams;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const GpuRank& rank = *ranks_[r];
    const DeviceGuard guard(rank.device);
    cuda::check(cudaMemsetAsync(rank.y.data(), kUnwrittenOnGpu & 0xFF, rank.y_bytes, stream(r)),
                "clearing y");
    calls.push_back(rank.call());
    if (!one_launch_ || r == 0) streams.push_back(stream(r));
  }
  group_->synchronize();
  for (std::size_t r = 0; r < streams.size(); ++r) {
    const DeviceGuard guard(ranks_[r]->device);
    cuda::check(cudaStreamSynchronize(streams[r]), "clearing y");
    ranks_[r]->begin.record(streams[r]);
  }
  group_->forward(calls, options, streams);
  for (std::size_t r = 0; r < streams.size(); ++r) {
    const DeviceGuard guard(ranks_[r]->device);
    ranks_[r]->end.record(streams[r]);
  }
  group_->synchronize();
  double us = 0;
  for (std::size_t r = 0; r < streams.size(); ++r) {
    const DeviceGuard guard(ranks_[r]->device);
    cuda::check(cudaStreamSynchronize(streams[r]), "waiting for a call");
    us = std::max(us, ranks_[r]->end.us_since(ranks_[r]->begin));
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) group_->layer(static_cast<int>(r)).check();
  return us;
}

std::vector<std::vector<std::uint16_t>> GpuRun::y() const {
  std::vector<std::vector<std::uint16_t>> all;
  for (const auto& rank : ranks_) {
    auto& y = all.emplace_back(rank->y_bytes / sizeof(std::uint16_t));
    if (!y.empty())
      cuda::check(cudaMemcpy(y.data(), rank->y.data(), rank->y_bytes, cudaMemcpyDefault), "y");
  }
  return all;
}

int GpuRun::device(std::size_t rank) const { return ranks_[rank]->device; }

cudaStream_t GpuRun::stream(std::size_t rank) const {
  return ranks_[one_launch_ ? 0 : rank]->stream.get();
}

}  // namespace megamoe::cli
