// What the C interface does when it is used right.
#include <thread>

#include <gmock/gmock.h>

#include "c_case.hpp"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(CApi, RunsALayer) {
  CCase c;
  ASSERT_EQ(c.stage(0), MEGAMOE_OK) << megamoe_last_error();
  ASSERT_EQ(c.stage(1), MEGAMOE_OK);
  ASSERT_EQ(c.forward(), MEGAMOE_OK) << megamoe_last_error();
  for (const auto& y : c.y) EXPECT_THAT(y, Each(CCase::kExpected));
  megamoe_call_report report{};
  report.size = sizeof report;
  for (megamoe_layer* layer : c.layers) {
    ASSERT_EQ(megamoe_layer_check(layer, &report), MEGAMOE_OK);
    EXPECT_EQ(report.rows_received, 2);
    EXPECT_EQ(report.epoch, 1U);
    EXPECT_EQ(report.has_bad_id, 0);
  }
}

TEST(CApi, LayersCallFromThreadsOfTheirOwnAndTakeIdsOf32Bits) {
  CCase c;
  const std::array<std::int32_t, 2> ids = {1, 2};
  std::array<std::int64_t, 2> stats{};
  std::vector<std::thread> threads;
  std::array<megamoe_status, 2> status{};
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      megamoe_forward_options options;
      status[r] = megamoe_forward_options_init(&options, sizeof options);
      if (r == 1) options.recv_stats = stats.data();
      if (status[r] == MEGAMOE_OK)
        status[r] = megamoe_layer_stage_i32(c.layers[r], c.hidden_states.data(), ids.data(),
                                            c.slot_weights.data(), 1, 2.0F, nullptr);
      if (status[r] == MEGAMOE_OK)
        status[r] = megamoe_layer_forward(c.layers[r], c.y[r].data(), 1, &c.weights, nullptr,
                                          &options, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(status, Each(MEGAMOE_OK)) << megamoe_last_error();
  // routed_scaling 2: one binade more
  for (const auto& y : c.y) EXPECT_THAT(y, Each(CCase::kExpected + 0x80));
  EXPECT_THAT(stats, testing::ElementsAre(2, 0)) << "expert 2 of the group is rank 1's first";
}

TEST(CApi, ViewsAreTheInputThatACallReads) {
  CCase c;
  megamoe_input_views views{};
  for (std::size_t r = 0; r < 2; ++r) {
    views.size = sizeof views;
    ASSERT_EQ(megamoe_layer_inputs(c.layers[r], &views), MEGAMOE_OK);
    EXPECT_EQ(views.x_scales, nullptr) << "BF16 has none";
    std::copy(c.hidden_states.begin(), c.hidden_states.end(), static_cast<std::uint16_t*>(views.x));
    std::copy(c.ids.begin(), c.ids.end(), views.topk_idx);
    std::copy(c.slot_weights.begin(), c.slot_weights.end(), views.topk_weights);
  }
  ASSERT_EQ(c.forward(), MEGAMOE_OK) << megamoe_last_error();
  EXPECT_THAT(c.y[1], Each(CCase::kExpected));
}

TEST(CApi, TellsABadId) {
  CCase c;
  c.ids = {0, 77};
  ASSERT_EQ(c.stage(0), MEGAMOE_OK);
  ASSERT_EQ(c.stage(1), MEGAMOE_OK);
  ASSERT_EQ(c.forward(), MEGAMOE_OK);
  megamoe_call_report report{};
  report.size = sizeof report;
  ASSERT_EQ(megamoe_layer_check(c.layers[0], &report), MEGAMOE_OK);
  EXPECT_EQ(report.has_bad_id, 1);
  EXPECT_EQ(report.bad_id, 77);
  EXPECT_EQ(report.bad_token, 0);
  EXPECT_EQ(report.bad_slot, 1);
}

TEST(CApi, FaultsHaveATextAndEndWithReset) {
  CCase c;
  ASSERT_EQ(c.stage(0), MEGAMOE_OK);
  ASSERT_EQ(c.stage(1), MEGAMOE_OK);
  ASSERT_EQ(megamoe_layer_abort(c.layers[1]), MEGAMOE_OK);
  EXPECT_EQ(c.forward(), MEGAMOE_FAULT);
  EXPECT_EQ(megamoe_layer_check(c.layers[0], nullptr), MEGAMOE_FAULT);
  EXPECT_THAT(megamoe_last_error(), HasSubstr("rank 1"));
  ASSERT_EQ(megamoe_group_reset(c.group), MEGAMOE_OK) << megamoe_last_error();
  EXPECT_EQ(c.forward(), MEGAMOE_OK) << megamoe_last_error();
  EXPECT_THAT(c.y[0], Each(CCase::kExpected));
}

TEST(CApi, ALateRankIsAFaultWithinTheDeadline) {
  CCase c;
  ASSERT_EQ(c.stage(0), MEGAMOE_OK);
  megamoe_forward_options options;
  ASSERT_EQ(megamoe_forward_options_init(&options, sizeof options), MEGAMOE_OK);
  options.deadline_ns = 50'000'000;
  EXPECT_EQ(
      megamoe_layer_forward(c.layers[0], c.y[0].data(), 1, &c.weights, nullptr, &options, nullptr),
      MEGAMOE_FAULT);
  EXPECT_THAT(megamoe_last_error(), HasSubstr("rank"));
}

TEST(CApi, TextsAreCutToTheirCapacity) {
  CCase c;
  std::size_t length = 0;
  ASSERT_EQ(megamoe_layer_memory_map(c.layers[0], nullptr, 0, &length), MEGAMOE_OK);
  ASSERT_GT(length, 100U);
  std::vector<char> text(length + 1, '#');
  ASSERT_EQ(megamoe_layer_memory_map(c.layers[0], text.data(), text.size(), nullptr), MEGAMOE_OK);
  EXPECT_EQ(std::string(text.data()).size(), length);
  std::array<char, 8> cut;
  cut.fill('#');
  ASSERT_EQ(megamoe_layer_memory_map(c.layers[0], cut.data(), 4, &length), MEGAMOE_OK);
  EXPECT_EQ(std::string(cut.data()), std::string(text.data(), 3));
  EXPECT_EQ(cut[4], '#');
  ASSERT_EQ(c.stage(0), MEGAMOE_OK);
  ASSERT_EQ(c.stage(1), MEGAMOE_OK);
  ASSERT_EQ(c.forward(), MEGAMOE_OK);
  ASSERT_EQ(megamoe_layer_config(c.layers[0], nullptr, 0, &length), MEGAMOE_OK);
  EXPECT_GT(length, 0U);
}

TEST(CApi, ReportsMemoryRanksAndVersion) {
  CCase c;
  megamoe_memory_report report{};
  report.size = sizeof report;
  ASSERT_EQ(megamoe_layer_memory(c.layers[1], &report), MEGAMOE_OK);
  EXPECT_GT(report.symmetric_bytes, 8U * 256 * 2);
  EXPECT_GT(report.local_bytes, 0U);
  std::int32_t ranks = 0;
  ASSERT_EQ(megamoe_group_num_local_ranks(c.group, &ranks), MEGAMOE_OK);
  EXPECT_EQ(ranks, 2);
  ASSERT_EQ(megamoe_layer_rank(c.layers[1], &ranks), MEGAMOE_OK);
  EXPECT_EQ(ranks, 1);
  EXPECT_EQ(megamoe_layer_synchronize(c.layers[0]), MEGAMOE_OK);
  EXPECT_EQ(megamoe_group_synchronize(c.group), MEGAMOE_OK);
  EXPECT_THAT(megamoe_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(CApi, SizesAndOrderOfWeights) {
  std::array<std::size_t, 4> bytes{};
  ASSERT_EQ(megamoe_expert_bytes(MEGAMOE_FP8, 256, 128, bytes.data()), MEGAMOE_OK);
  EXPECT_THAT(bytes, testing::ElementsAre(2 * 128 * 256, 2 * 2 * 4, 256 * 128, 2 * 4));
  std::vector<std::uint16_t> rows(256), to(256);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i);
  ASSERT_EQ(megamoe_interleave_rows(rows.data(), to.data(), 128, 2), MEGAMOE_OK);
  EXPECT_EQ(to[7], 7);
  EXPECT_EQ(to[8], 128) << "the first up row follows 8 gate rows";
  EXPECT_EQ(to[16], 8);
}

}  // namespace
