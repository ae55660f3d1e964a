#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/kernel_config.hpp"
#include "host/layer_state.hpp"
#include "megamoe/megamoe.hpp"
#include "ref/compare.hpp"
#include "ref/reference.hpp"
#include "tests/support/small_calls.hpp"

namespace megamoe {

/// A Group on host memory with random weights; runs calls and compares them with the reference.
class CpuCase {
 public:
  /// A NaN that no call writes, whatever its input: its quiet bit is clear.
  static constexpr std::uint16_t kUnwritten = 0x7fbf;

  explicit CpuCase(const Problem& problem, bool one_launch = false, bool biases = false)
      : problem_(problem),
        weights_(ref::random_layer(problem, 7, {.biases = biases})),
        group_(problem, one_launch ? SymmetricMemory::host_virtual(problem.ranks)
                                   : SymmetricMemory::host(problem.ranks)) {
    for (const ref::OwnedExpertTensors& w : weights_.routed) views_.push_back(w.view());
    shared_ = weights_.shared.view();
  }

  Group& group() { return group_; }
  const Problem& problem() const { return problem_; }
  const ExpertTensors& routed(int rank) const { return views_[static_cast<std::size_t>(rank)]; }
  const ExpertTensors* shared() const { return problem_.shared_experts > 0 ? &shared_ : nullptr; }
  LayerState& state(int rank) { return LayerAccess::state(group_.layer(rank)); }

  /// Random delays between the protocol's steps from now on; 0: none.
  void set_delays(std::uint64_t seed) {
    for (int r = 0; r < problem_.ranks; ++r) {
      state(r).delay_seed = seed == 0 ? 0 : seed * 1000 + static_cast<std::uint64_t>(r) + 1;
    }
  }

  void stage(const ref::RandomInputs& inputs) {
    for (int r = 0; r < problem_.ranks; ++r) {
      const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(r)];
      group_.layer(r).stage(tokens.hidden_states.data(),
                            std::span<const std::int64_t>(tokens.topk_idx), tokens.topk_weights,
                            tokens.num_tokens);
    }
  }

  /// Runs a staged call; y of all ranks, rank after rank. y is filled with kUnwritten first.
  std::vector<std::uint16_t> run(const ref::RandomInputs& inputs,
                                 const ForwardOptions& options = {}) {
    std::size_t tokens = 0;
    for (const ref::RankTokens& r : inputs.ranks) tokens += static_cast<std::size_t>(r.num_tokens);
    const std::size_t hidden = static_cast<std::size_t>(problem_.hidden);
    std::vector<std::uint16_t> y(tokens * hidden, kUnwritten);
    std::vector<RankCall> calls;
    std::size_t first = 0;
    for (int r = 0; r < problem_.ranks; ++r) {
      const int n = inputs.ranks[static_cast<std::size_t>(r)].num_tokens;
      calls.push_back({n == 0 ? nullptr : y.data() + first * hidden, n, &routed(r), shared()});
      first += static_cast<std::size_t>(n);
    }
    group_.forward(calls, options);
    return y;
  }

  std::vector<std::uint16_t> reference(const ref::RandomInputs& inputs) const {
    return ref::run(inputs.view(), weights_.view(), 2);
  }

  /// Bounds of docs/adr and of the numerics: FP32 against double accumulation flips a few codes of
  /// h.
  void expect_close(std::span<const std::uint16_t> y, std::span<const std::uint16_t> expected,
                    const std::string& what) const {
    EXPECT_EQ(std::count(y.begin(), y.end(), kUnwritten), 0) << what << ": values left unwritten";
    const ref::Difference d = ref::compare(y, expected, problem_.hidden);
    EXPECT_LT(d.diff, problem_.precision == Precision::bf16 ? 1e-5 : 3e-5) << what;
    EXPECT_LT(d.worst_row_relative_l2, 2e-2) << what << ", row " << d.worst_row;
  }

 private:
  Problem problem_;
  ref::OwnedLayerWeights weights_;
  std::vector<ExpertTensors> views_;
  ExpertTensors shared_;
  Group group_;
};

}  // namespace megamoe
