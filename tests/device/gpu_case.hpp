#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "host/devices.hpp"
#include "host/layer_state.hpp"
#include "ref/gpu_bounds.hpp"
#include "ref/reference.hpp"
#include "tests/device/gpu_memory.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/small_calls.hpp"

namespace megamoe {

/// One call's inputs in the memory of the ranks' GPUs.
struct GpuInputs {
  struct Rank {
    Rank(int device, const ref::RankTokens& from)
        : num_tokens(from.num_tokens),
          hidden_states(device, std::span<const std::uint16_t>(from.hidden_states)),
          ids(device, std::span<const std::int64_t>(from.topk_idx)),
          weights(device, std::span<const float>(from.topk_weights)) {}
    int num_tokens;
    GpuArray<std::uint16_t> hidden_states;
    GpuArray<std::int64_t> ids;
    GpuArray<float> weights;
  };
  std::vector<std::unique_ptr<Rank>> ranks;
};

/// A GPU for each rank; where there are fewer and MEGAMOE_RANKS_PER_GPU allows it, some twice.
inline std::vector<int> gpus_of(int ranks) {
  std::vector<int> usable = find_devices().usable;
  EXPECT_GE(usable.size(), static_cast<std::size_t>(ranks));
  usable.resize(static_cast<std::size_t>(ranks));
  return usable;
}

/// A Group on GPUs with random weights; stages and runs calls, compares them with the reference.
class GpuCase {
 public:
  /// Virtual ranks on one GPU.
  explicit GpuCase(const Problem& problem)
      : GpuCase(problem, std::vector<int>(static_cast<std::size_t>(problem.ranks), 0),
                SymmetricMemory::cuda_virtual(problem.ranks, 0)) {}
  /// A rank on each of these GPUs.
  GpuCase(const Problem& problem, const std::vector<int>& devices)
      : GpuCase(problem, devices, SymmetricMemory::cuda_peers(devices)) {}

  Group& group() { return group_; }
  const Problem& problem() const { return problem_; }
  LayerState& state(int rank) { return LayerAccess::state(group_.layer(rank)); }
  const ref::OwnedLayerWeights& weights() const { return weights_; }
  int device(int rank) const { return devices_[index(rank)]; }
  const ExpertTensors& routed(int rank) const { return ranks_[index(rank)]->routed.view(); }
  std::uint16_t* y(int rank) { return ranks_[index(rank)]->y.data(); }
  Stream stream(int rank) const { return ranks_[one_launch_ ? 0 : index(rank)]->stream.get(); }
  /// The ranks with a stream of their own: of virtual ranks the first.
  std::vector<int> launching_ranks() const {
    std::vector<int> ranks(one_launch_ ? 1 : static_cast<std::size_t>(problem_.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  std::vector<Stream> streams() const {
    std::vector<Stream> all;
    for (const int r : launching_ranks()) all.push_back(stream(r));
    return all;
  }
  /// Starts one rank's call through its Layer, y filled with NaN before.
  void start_rank(int r, const ForwardOptions& options = {}) {
    clear_y(r);
    const RankCall call = call_of(r);
    group_.layer(r).forward(call.y, call.num_tokens, *call.weights, call.shared, options,
                            stream(r));
  }

  /// Brings the inputs to where stage() reads them.
  void upload(const ref::RandomInputs& inputs) {
    counts_.clear();
    for (int r = 0; r < problem_.ranks; ++r) {
      const ref::RankTokens& tokens = inputs.ranks[index(r)];
      Rank& rank = *ranks_[index(r)];
      rank.hidden_states.upload(tokens.hidden_states);
      rank.ids.upload(tokens.topk_idx);
      rank.weights.upload(tokens.topk_weights);
      counts_.push_back(tokens.num_tokens);
    }
  }
  GpuInputs to_gpu(const ref::RandomInputs& inputs) const {
    GpuInputs out;
    for (int r = 0; r < problem_.ranks; ++r) {
      out.ranks.push_back(std::make_unique<GpuInputs::Rank>(device(r), inputs.ranks[index(r)]));
    }
    return out;
  }
  /// As upload, in stream order.
  void start_upload(const GpuInputs& inputs) {
    counts_.clear();
    for (int r = 0; r < problem_.ranks; ++r) {
      const GpuInputs::Rank& from = *inputs.ranks[index(r)];
      const Rank& to = *ranks_[index(r)];
      const auto tokens = static_cast<std::size_t>(from.num_tokens);
      const auto hidden = static_cast<std::size_t>(problem_.hidden);
      const auto slots = tokens * static_cast<std::size_t>(problem_.top_k);
      start_copy(to.hidden_states.data(), from.hidden_states.data(), tokens * hidden * 2, r);
      start_copy(to.ids.data(), from.ids.data(), slots * sizeof(std::int64_t), r);
      start_copy(to.weights.data(), from.weights.data(), slots * sizeof(float), r);
      counts_.push_back(from.num_tokens);
    }
  }
  /// Starts the staging kernels.
  void start_stage(float scaling = 1.0F) {
    for (int r = 0; r < problem_.ranks; ++r) {
      Rank& rank = *ranks_[index(r)];
      const auto slots = static_cast<std::size_t>(counts_[index(r)]) * problem_.top_k;
      group_.layer(r).stage(rank.hidden_states.data(),
                            std::span<const std::int64_t>(rank.ids.data(), slots),
                            std::span<const float>(rank.weights.data(), slots), counts_[index(r)],
                            scaling, stream(r));
    }
  }
  void stage(const ref::RandomInputs& inputs) {
    upload(inputs);
    start_stage();
  }

  /// Starts a call of what was staged last, y filled with NaN before.
  void start_call(const ForwardOptions& options = {}) {
    for (int r = 0; r < problem_.ranks; ++r) clear_y(r);
    start_call_only(options);
  }
  /// The same, y left as it is.
  void start_call_only(const ForwardOptions& options = {}) {
    std::vector<RankCall> calls;
    for (int r = 0; r < problem_.ranks; ++r) calls.push_back(call_of(r));
    group_.forward(calls, options, streams());
  }
  void clear_y(int r) {
    const cuda::DeviceGuard guard(devices_[index(r)]);
    cuda::check(cudaMemsetAsync(y(r), 0xFF, y_values(problem_.max_tokens_per_rank) * 2, stream(r)),
                "clearing y");
  }
  RankCall call_of(int r) {
    return {y(r), counts_[index(r)], &routed(r),
            problem_.shared_experts > 0 ? &ranks_[index(r)]->shared->view() : nullptr};
  }
  /// Waits, throws faults, and gives y of all ranks, rank after rank.
  std::vector<std::uint16_t> finish_call() {
    group_.synchronize();
    for (int r = 0; r < problem_.ranks; ++r) group_.layer(r).check();
    return download_y();
  }
  std::vector<std::uint16_t> download_y() {
    std::vector<std::uint16_t> all;
    for (int r = 0; r < problem_.ranks; ++r) {
      const auto part = ranks_[index(r)]->y.download(y_values(counts_[index(r)]));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  std::vector<std::uint16_t> run(const ForwardOptions& options = {}) {
    start_call(options);
    return finish_call();
  }

  /// y within the bounds of ref/gpu_bounds.hpp; of large layers a sample of rows.
  void expect_close(std::span<const std::uint16_t> y, const ref::RandomInputs& inputs,
                    const std::string& what) const {
    EXPECT_EQ(std::count(y.begin(), y.end(), 0xFFFF), 0) << what << ": values left unwritten";
    const double products =
        3.0 * problem_.hidden * problem_.intermediate * problem_.contributions();
    const std::size_t rows = ref::all_rows(inputs.view()).size();
    const std::size_t step =
        1 + static_cast<std::size_t>(products * static_cast<double>(rows) / kMostProducts);
    const ref::GpuCheck check = check_rows(y, inputs, 0, step);
    EXPECT_TRUE(check.ok()) << what << ": " << ref::text(check);
  }

  /// Every step-th row of y, from row `first` on.
  ref::GpuCheck check_rows(std::span<const std::uint16_t> y, const ref::RandomInputs& inputs,
                           std::size_t first, std::size_t step) const {
    const std::vector<ref::Row> all = ref::all_rows(inputs.view());
    std::vector<ref::Row> rows;
    std::vector<std::uint16_t> sample;
    for (std::size_t i = first; i < all.size(); i += step) {
      rows.push_back(all[i]);
      const auto row = y.begin() + static_cast<long>(i) * problem_.hidden;
      sample.insert(sample.end(), row, row + problem_.hidden);
    }
    return ref::check_gpu(sample, inputs.view(), weights_.view(), rows, kThreads);
  }

 private:
  static constexpr double kMostProducts = 4e9;
  static constexpr int kThreads = 8;
  /// Bring-up faults end fast.
  static constexpr auto kFirstCallDeadline = std::chrono::seconds(5);

  struct Rank {
    Rank(const Problem& p, int device, const ref::OwnedLayerWeights& from, std::size_t rank)
        : routed(device, from.routed[rank]),
          hidden_states(device, static_cast<std::size_t>(p.max_tokens_per_rank) * p.hidden),
          ids(device, static_cast<std::size_t>(p.max_tokens_per_rank) * p.top_k),
          weights(device, static_cast<std::size_t>(p.max_tokens_per_rank) * p.top_k),
          y(device, static_cast<std::size_t>(p.max_tokens_per_rank) * p.hidden),
          stream(device) {
      if (p.shared_experts > 0) shared = std::make_unique<GpuExperts>(device, from.shared);
    }
    GpuExperts routed;
    std::unique_ptr<GpuExperts> shared;
    GpuArray<std::uint16_t> hidden_states;
    GpuArray<std::int64_t> ids;
    GpuArray<float> weights;
    GpuArray<std::uint16_t> y;
    GpuStream stream;
  };

  GpuCase(const Problem& problem, const std::vector<int>& devices,
          std::unique_ptr<SymmetricMemory> memory)
      : problem_(problem),
        devices_(devices),
        one_launch_(memory->one_launch()),
        weights_(ref::random_layer(problem, 7)),
        group_(problem, std::move(memory)) {
    for (int r = 0; r < problem.ranks; ++r) {
      ranks_.push_back(std::make_unique<Rank>(problem, devices[index(r)], weights_, index(r)));
      state(r).first_call_deadline = kFirstCallDeadline;
    }
  }

  void start_copy(void* to, const void* from, std::size_t bytes, int rank) const {
    if (bytes == 0) return;
    const cuda::DeviceGuard guard(device(rank));
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream(rank)),
                "copying inputs");
  }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] std::size_t y_values(int tokens) const {
    return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(problem_.hidden);
  }

  Problem problem_;
  std::vector<int> devices_;
  bool one_launch_;
  ref::OwnedLayerWeights weights_;
  std::vector<std::unique_ptr<Rank>> ranks_;  ///< outlives no kernel: the Group waits for them
  std::vector<int> counts_;
  Group group_;
};

/// Options with a short deadline and this configuration.
inline ForwardOptions with_config(const KernelConfig* config) {
  ForwardOptions options;
  options.config = config;
  options.deadline = std::chrono::seconds(5);
  return options;
}

}  // namespace megamoe
