#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>

#include "tests/device/gpu_case.hpp"

// Values and shapes against the reference: bodies of tests for virtual ranks and for several GPUs.

namespace megamoe {

/// Makes the case of a Problem on the test's ranks.
using MakeCase = std::function<std::unique_ptr<GpuCase>(const Problem&)>;

/// One call against at most about `rows` rows of the reference.
inline void expect_rows(GpuCase& layer, const ref::RandomInputs& inputs, const KernelConfig* config,
                        std::size_t rows, const std::string& what) {
  ForwardOptions options = with_config(config);
  options.deadline = std::chrono::seconds(10);
  layer.stage(inputs);
  std::vector<std::uint16_t> y;
  ASSERT_NO_THROW(y = layer.run(options)) << what;
  ASSERT_EQ(std::count(y.begin(), y.end(), 0xFFFF), 0) << what << ": values left unwritten";
  const std::size_t all = y.size() / static_cast<std::size_t>(layer.problem().hidden);
  const ref::GpuCheck check = layer.check_rows(y, inputs, 0, 1 + all / rows);
  EXPECT_TRUE(check.ok()) << what << ": " << ref::text(check);
}

/// Rows of a call and what the reference says of them, whatever the configuration.
class ExpectedRows {
 public:
  /// About `count` rows, evenly spaced, the first, and every rank's last.
  ExpectedRows(const GpuCase& layer, const ref::RandomInputs& inputs, std::size_t count)
      : hidden_(layer.problem().hidden) {
    const std::vector<ref::Row> all = ref::all_rows(inputs.view());
    const std::size_t step = 1 + all.size() / count;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool last = i + 1 == all.size() || all[i + 1].rank != all[i].rank;
      if (i % step == 0 || last) places_.push_back(i);
    }
    std::vector<ref::Row> rows;
    for (const std::size_t place : places_) rows.push_back(all[place]);
    const ref::LayerWeights weights = layer.weights().view();
    model_ = ref::run_rows_on_tensor_core(inputs.view(), weights, rows, kThreads);
    exact_ = ref::run_rows(inputs.view(), weights, rows, kThreads);
  }

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  /// `y`: of all rows.
  [[nodiscard]] ref::GpuCheck check(std::span<const std::uint16_t> y) const {
    const auto hidden = static_cast<std::size_t>(hidden_);
    std::vector<std::uint16_t> sample;
    for (const std::size_t place : places_) {
      const auto row = y.subspan(place * hidden, hidden);
      sample.insert(sample.end(), row.begin(), row.end());
    }
    return {ref::agree(sample, model_, hidden_), ref::compare(sample, exact_, hidden_),
            ref::bounds_on_gpu(model_, exact_, hidden_)};
  }

 private:
  static constexpr int kThreads = 8;
  int hidden_;
  std::vector<std::size_t> places_;  ///< among all rows
  ref::TensorCoreOutput model_;
  std::vector<std::uint16_t> exact_;
};

inline void check_large_counts(int ranks, const MakeCase& make) {
  for (const int tokens : {1000, 4096}) {
    const auto layer = make({.ranks = ranks,
                             .experts = 32,
                             .top_k = 6,
                             .hidden = 512,
                             .intermediate = 256,
                             .max_tokens_per_rank = tokens});
    for (const int block_rows : {64, 128}) {
      const KernelConfig config = config_for_block_rows(layer->problem(), block_rows);
      for (const ref::RoutingKind kind :
           {ref::RoutingKind::uniform, ref::RoutingKind::one_rank, ref::RoutingKind::skewed}) {
        expect_rows(
            *layer, equal_inputs(layer->problem(), tokens, {kind}, 3), &config, 100,
            fmt::format("{} tokens, blocks of {}, {}", tokens, block_rows, ref::name({kind})));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// Beyond the counts up to which the sum takes every token in pieces (4096) and a route ticket has
/// its 128 tokens (64 of them: 8192).
inline void check_many_tokens(int ranks, const MakeCase& make) {
  const auto layer = make({.ranks = ranks,
                           .experts = 16,
                           .top_k = 4,
                           .hidden = 256,
                           .intermediate = 128,
                           .max_tokens_per_rank = 8193});
  const Problem& p = layer->problem();
  std::vector<std::vector<int>> counts(1, std::vector<int>(static_cast<std::size_t>(ranks), 5));
  counts.front().front() = 8193;
  for (const int tokens : {4097, 8192, 8193}) {
    if (ranks <= 2 || tokens == 8193) counts.emplace_back(ranks, tokens);
  }
  for (const std::vector<int>& tokens : counts) {
    const auto inputs = ref::random_inputs(p, tokens, {ref::RoutingKind::uniform}, 8);
    for (const int block_rows : {16, 128}) {
      const KernelConfig config = config_for_block_rows(p, block_rows);
      expect_rows(*layer, inputs, &config, 400,
                  fmt::format("{} tokens, blocks of {}", fmt::join(tokens, ","), block_rows));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

/// The largest groups of prefill blocks, with several blocks per expert.
inline void check_prefill_groups(int ranks, const MakeCase& make) {
  constexpr int kTokens = 1000;
  const auto layer = make({.ranks = ranks,
                           .experts = 8 * ranks,
                           .top_k = 6,
                           .hidden = 1024,
                           .intermediate = 512,
                           .max_tokens_per_rank = kTokens});
  const KernelConfig config = config_for_block_rows(layer->problem(), 128);
  ASSERT_EQ(config.group_blocks, 8);
  for (const ref::RoutingKind kind :
       {ref::RoutingKind::uniform, ref::RoutingKind::one_rank, ref::RoutingKind::skewed}) {
    expect_rows(*layer, equal_inputs(layer->problem(), kTokens, {kind}, 3), &config, 100,
                fmt::format("groups of 8 blocks, {}", ref::name({kind})));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline void check_clamps(int ranks, const MakeCase& make) {
  for (const float clamp : {Activation::kNone, 10.0F, 1.0F}) {
    Problem p = {.ranks = ranks,
                 .experts = 16,
                 .top_k = 4,
                 .hidden = 384,
                 .intermediate = 256,
                 .max_tokens_per_rank = 50};
    p.activation.clamp = clamp;
    const auto layer = make(p);
    for (const int block_rows : {8, 32, 128}) {
      const KernelConfig config = config_for_block_rows(p, block_rows);
      expect_rows(*layer, equal_inputs(p, 50, {ref::RoutingKind::uniform}, 4), &config, 100,
                  fmt::format("clamp {}, blocks of {}", clamp, block_rows));
    }
  }
}

/// Tokens of zeros and of 1e-38, tokens with one large value, one NaN or one Inf, and ids of the
/// first and last expert.
inline void check_special_tokens(int ranks, const MakeCase& make) {
  const Problem p = {.ranks = ranks,
                     .experts = 16,
                     .top_k = 2,
                     .hidden = 384,
                     .intermediate = 256,
                     .max_tokens_per_rank = 40};
  constexpr std::uint16_t kTiny = 0x006D;  // 1e-38, subnormal
  const auto layer = make(p);
  auto inputs = equal_inputs(p, 40, {ref::RoutingKind::uniform}, 5);
  const auto hidden = static_cast<std::size_t>(p.hidden);
  for (ref::RankTokens& rank : inputs.ranks) {
    auto states = rank.hidden_states;
    auto ids = rank.topk_idx;
    std::fill_n(states.begin(), 2 * hidden, std::uint16_t{0});
    std::fill_n(states.begin() + static_cast<long>(2 * hidden), 2 * hidden, kTiny);
    states[5 * hidden + 7] = 0x47C3;   // 1e5
    states[21 * hidden + 7] = 0x7FC0;  // NaN
    states[22 * hidden + 9] = 0x7F80;  // Inf
    for (std::size_t token = 8; token < 20; ++token) {
      ids[2 * token] = 0;
      ids[2 * token + 1] = p.experts - 1;
    }
    rank = ref::stage_tokens(p, std::move(states), std::move(ids), rank.topk_weights);
  }
  for (const int block_rows : {8, 16, 32, 64, 128}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    expect_rows(*layer, inputs, &config, 1000, fmt::format("blocks of {}", block_rows));
  }
}

struct ModelShape {
  const char* name;
  int hidden, intermediate, top_k, shared_experts;
  float clamp;
};
/// Shapes that people serve, with their top-k; experts are few here, since their number changes no
/// tile.
inline constexpr ModelShape kModels[] = {{"deepseek-v3", 7168, 2048, 8, 1, Activation::kNone},
                                         {"deepseek-v4-flash", 4096, 2048, 6, 1, 10.0F},
                                         {"deepseek-v4-pro", 7168, 3072, 6, 1, 10.0F},
                                         {"qwen3-235b-a22b", 4096, 1536, 8, 0, Activation::kNone},
                                         {"qwen3-30b-a3b", 2048, 768, 8, 0, Activation::kNone},
                                         {"glm-4.5-air", 4096, 1408, 8, 1, Activation::kNone},
                                         {"glm-5", 6144, 2048, 8, 1, Activation::kNone},
                                         {"minimax-m2.5", 3072, 1536, 8, 0, Activation::kNone},
                                         {"mixtral-8x7b", 4096, 14336, 2, 0, Activation::kNone}};

inline void check_models(int ranks, const MakeCase& make) {
  for (const ModelShape& model : kModels) {
    Problem p = {.ranks = ranks,
                 .experts = (model.top_k / ranks + 1) * ranks,
                 .top_k = model.top_k,
                 .hidden = model.hidden,
                 .intermediate = model.intermediate,
                 .max_tokens_per_rank = 160};
    p.shared_experts = model.shared_experts;
    p.activation.clamp = model.clamp;
    const auto layer = make(p);
    for (const int tokens : {7, 160}) {
      const auto inputs = equal_inputs(p, tokens, {ref::RoutingKind::uniform}, 6);
      const ExpectedRows expected(*layer, inputs, tokens == 160 ? 16 : 2);
      ASSERT_GE(expected.size(), tokens == 160 ? 16U : 2U);
      for (const int block_rows : {8, 32, 128}) {
        const KernelConfig config = config_for_block_rows(p, block_rows);
        const std::string what =
            fmt::format("{}, {} tokens, blocks of {}", model.name, tokens, block_rows);
        ForwardOptions options = with_config(&config);
        options.deadline = std::chrono::seconds(10);
        layer->stage(inputs);
        std::vector<std::uint16_t> y;
        ASSERT_NO_THROW(y = layer->run(options)) << what;
        ASSERT_EQ(std::count(y.begin(), y.end(), 0xFFFF), 0) << what << ": values left unwritten";
        const ref::GpuCheck check = expected.check(y);
        EXPECT_TRUE(check.ok()) << what << ": " << ref::text(check);
      }
    }
    const std::string text = fmt::format("{} ranks: {} done\n", ranks, model.name);
    std::fputs(text.c_str(), stdout);
  }
}

}  // namespace megamoe
