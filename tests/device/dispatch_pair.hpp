#pragma once

#include <string>
#include <vector>

#include "host/dispatch.hpp"
#include "tests/device/gpu_case.hpp"

namespace megamoe {

/// A GPU case and a CPU group of the same Problem, whose dispatches must be equal.
class DispatchPair {
 public:
  explicit DispatchPair(GpuCase& gpu)
      : gpu_(&gpu), cpu_(gpu.problem(), SymmetricMemory::host(gpu.problem().ranks)) {}

  /// Where the GPU's dispatch of these inputs differs from the CPU's, or an empty string. Throws
  /// Error when a call fails.
  std::string difference(const ref::RandomInputs& inputs, const KernelConfig& config) {
    std::vector<int> counts;
    for (int r = 0; r < inputs.problem.ranks; ++r) {
      const ref::RankTokens& t = inputs.ranks[static_cast<std::size_t>(r)];
      counts.push_back(t.num_tokens);
      cpu_.layer(r).stage(t.hidden_states.data(), std::span<const std::int64_t>(t.topk_idx),
                          t.topk_weights, t.num_tokens);
    }
    ForwardOptions options = with_config(&config);
    gpu_->stage(inputs);
    const auto got = run_dispatch(gpu_->group(), counts, options, gpu_->streams());
    options.num_sms = 1;
    const auto expected = run_dispatch(cpu_, counts, options);
    for (std::size_t r = 0; r < got.size(); ++r) {
      const char* what = first_difference(got[r], expected[r]);
      if (what != nullptr) return fmt::format("{} of rank {}", what, r);
    }
    return {};
  }
  void expect_equal(const ref::RandomInputs& inputs, const KernelConfig& config,
                    const std::string& what) {
    std::string different;
    ASSERT_NO_THROW(different = difference(inputs, config)) << what;
    ASSERT_EQ(different, "") << what;
  }

 private:
  static const char* first_difference(const DispatchedRows& a, const DispatchedRows& b) {
    if (a.rows_of != b.rows_of) return "counts";
    if (a.meta != b.meta) return "metadata or order";
    if (a.weights != b.weights) return "weights";
    if (a.x != b.x) return "rows";
    if (a.x_scales != b.x_scales) return "scales";
    return nullptr;
  }

  GpuCase* gpu_;
  Group cpu_;
};

inline Problem dispatch_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 48,
          .top_k = 6,
          .hidden = 640,
          .intermediate = 128,
          .max_tokens_per_rank = 200};
}

/// Token counts, blocks and routings of one case.
inline void expect_all_dispatches(GpuCase& gpu) {
  const Problem& p = gpu.problem();
  DispatchPair pair(gpu);
  std::vector<int> unequal, last_only(static_cast<std::size_t>(p.ranks), 0);
  for (int r = 0; r < p.ranks; ++r) unequal.push_back((r * 67 + 31) % 193);
  last_only.back() = 192;
  for (const int block_rows : {8, 16, 32, 64, 128}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    const auto expect = [&](const ref::RandomInputs& inputs, const std::string& what) {
      pair.expect_equal(inputs, config, fmt::format("{}, blocks of {} rows", what, block_rows));
    };
    for (const int tokens : {0, 8, 48, 192}) {
      for (const ref::Routing routing :
           {ref::Routing{ref::RoutingKind::balanced}, ref::Routing{ref::RoutingKind::one_rank}}) {
        expect(equal_inputs(p, tokens, routing, 1),
               fmt::format("{} tokens, {}", tokens, ref::name(routing)));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    for (const std::vector<int>& counts : {unequal, last_only}) {
      expect(ref::random_inputs(p, counts, {ref::RoutingKind::uniform}, 2),
             counts == unequal ? "unequal counts" : "empty sources");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace megamoe
