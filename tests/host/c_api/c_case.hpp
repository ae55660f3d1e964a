#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/megamoe.h"

/// A small BF16 layer of constants on two CPU ranks, two experts each: every token whose two
/// weights are 0.5 gets BF16(0.7305) in every channel.
struct CCase {
  static constexpr int kRanks = 2, kExperts = 4, kTopK = 2, kHidden = 256, kIntermediate = 128;
  static constexpr std::uint16_t kOne = 0x3F80, kExpected = 0x3F3B;

  static megamoe_problem problem() {
    megamoe_problem p;
    EXPECT_EQ(megamoe_problem_init(&p, sizeof p), MEGAMOE_OK);
    p.ranks = kRanks;
    p.experts = kExperts;
    p.top_k = kTopK;
    p.hidden = kHidden;
    p.intermediate = kIntermediate;
    p.max_tokens_per_rank = 8;
    p.precision = MEGAMOE_BF16;
    return p;
  }

  CCase() {
    const megamoe_problem p = problem();
    EXPECT_EQ(megamoe_group_create_host(&p, &group), MEGAMOE_OK) << megamoe_last_error();
    for (int r = 0; r < kRanks; ++r)
      EXPECT_EQ(megamoe_group_layer(group, r, &layers[static_cast<std::size_t>(r)]), MEGAMOE_OK);
    EXPECT_EQ(megamoe_experts_init(&weights, sizeof weights), MEGAMOE_OK);
    weights.precision = MEGAMOE_BF16;
    weights.num_experts = kExperts / kRanks;
    weights.hidden = kHidden;
    weights.intermediate = kIntermediate;
    weights.w1 = w1.data();
    weights.w2 = w2.data();
    for (int r = 0; r < kRanks; ++r) {
      calls[static_cast<std::size_t>(r)] = {.size = sizeof(megamoe_rank_call),
                                            .y = y[static_cast<std::size_t>(r)].data(),
                                            .weights = &weights,
                                            .shared = nullptr,
                                            .num_tokens = 1};
    }
  }
  CCase(const CCase&) = delete;
  CCase& operator=(const CCase&) = delete;
  ~CCase() { megamoe_group_destroy(group); }

  megamoe_status stage(int rank) {
    return megamoe_layer_stage(layers[static_cast<std::size_t>(rank)], hidden_states.data(),
                               ids.data(), slot_weights.data(), 1, 1.0F, nullptr);
  }
  megamoe_status forward(const megamoe_forward_options* options = nullptr) {
    return megamoe_group_forward(group, calls.data(), calls.size(), options, nullptr, 0);
  }

  megamoe_group* group = nullptr;
  std::array<megamoe_layer*, kRanks> layers{};
  std::vector<std::uint16_t> w1 =
      std::vector<std::uint16_t>(std::size_t{2} * 2 * kIntermediate * kHidden, 0x3B80);
  std::vector<std::uint16_t> w2 =
      std::vector<std::uint16_t>(std::size_t{2} * kHidden * kIntermediate, 0x3C00);
  std::vector<std::uint16_t> hidden_states = std::vector<std::uint16_t>(kHidden, kOne);
  std::array<std::int64_t, kTopK> ids = {0, 3};
  std::array<float, kTopK> slot_weights = {0.5F, 0.5F};
  std::array<std::vector<std::uint16_t>, kRanks> y = {std::vector<std::uint16_t>(kHidden),
                                                      std::vector<std::uint16_t>(kHidden)};
  megamoe_experts weights{};
  std::array<megamoe_rank_call, kRanks> calls{};
};
