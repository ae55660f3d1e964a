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

  void expect_equal(const ref::RandomInputs& inputs, const KernelConfig& config,
                    const std::string& what) {
    std::vector<int> counts;
    for (int r = 0; r < inputs.problem.ranks; ++r) {
      const ref::RankTokens& t = inputs.ranks[static_cast<std::size_t>(r)];
      counts.push_back(t.num_tokens);
      cpu_.layer(r).stage(t.hidden_states.data(), std::span<const std::int64_t>(t.topk_idx),
                          t.topk_weights, t.num_tokens);
    }
    ForwardOptions options = with_config(&config);
    gpu_->stage(inputs);
    std::vector<DispatchedRows> got, expected;
    ASSERT_NO_THROW(got = run_dispatch(gpu_->group(), counts, options, gpu_->streams())) << what;
    options.num_sms = 1;
    ASSERT_NO_THROW(expected = run_dispatch(cpu_, counts, options)) << what;
    for (std::size_t r = 0; r < got.size(); ++r) {
      const std::string rank = what + ", rank " + std::to_string(r);
      ASSERT_EQ(got[r].rows_of, expected[r].rows_of) << "counts: " << rank;
      ASSERT_EQ(got[r].meta, expected[r].meta) << "metadata and order: " << rank;
      ASSERT_EQ(got[r].weights, expected[r].weights) << "weights: " << rank;
      ASSERT_TRUE(got[r].x == expected[r].x) << "rows: " << rank;
      ASSERT_TRUE(got[r].x_scales == expected[r].x_scales) << "scales: " << rank;
    }
  }

 private:
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
