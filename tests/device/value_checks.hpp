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
/// Shapes that people serve; experts are few here, since their number changes no tile.
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
                 .experts = model.top_k == 2 ? 2 * ranks : 8,
                 .top_k = std::min(model.top_k, model.top_k == 2 ? 2 : 4),
                 .hidden = model.hidden,
                 .intermediate = model.intermediate,
                 .max_tokens_per_rank = 160};
    p.shared_experts = model.shared_experts;
    p.activation.clamp = model.clamp;
    const auto layer = make(p);
    for (const int tokens : {7, 160}) {
      const auto inputs = equal_inputs(p, tokens, {ref::RoutingKind::uniform}, 6);
      for (const int block_rows : {8, 32, 128}) {
        const KernelConfig config = config_for_block_rows(p, block_rows);
        expect_rows(*layer, inputs, &config, 2,
                    fmt::format("{}, {} tokens, blocks of {}", model.name, tokens, block_rows));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    const std::string text = fmt::format("{} ranks: {} done\n", ranks, model.name);
    std::fputs(text.c_str(), stdout);
  }
}

}  // namespace megamoe
