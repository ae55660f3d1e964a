// What the C interface answers to misuse: a status and a text, and nothing has changed.
#include <array>
#include <cstring>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include "c_case.hpp"
#include "tests/protocol/failing_allocations.hpp"

namespace {

using ::testing::HasSubstr;

/// The text of a call that must have been refused.
std::string refused(megamoe_status status, megamoe_status wanted = MEGAMOE_INVALID_ARGUMENT) {
  EXPECT_EQ(status, wanted) << megamoe_last_error();
  return megamoe_last_error();
}

TEST(CApiMisuse, NullHandlesAndArguments) {
  CCase c;
  const megamoe_problem p = CCase::problem();
  megamoe_group* group = nullptr;
  megamoe_layer* layer = nullptr;
  std::int32_t number = 0;
  EXPECT_EQ(refused(megamoe_group_create_host(nullptr, &group)), "problem is NULL");
  EXPECT_EQ(refused(megamoe_group_create_host(&p, nullptr)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_create_cuda_virtual(&p, 0, nullptr)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_create_cuda_peers(&p, nullptr, 2, &group)), "devices is NULL");
  EXPECT_EQ(group, nullptr);
  EXPECT_EQ(refused(megamoe_group_layer(nullptr, 0, &layer)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_layer(c.group, 0, nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_group_num_local_ranks(c.group, nullptr)), "num_ranks is NULL");
  EXPECT_EQ(refused(megamoe_group_num_local_ranks(nullptr, &number)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_synchronize(nullptr)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_reset(nullptr)), "group is NULL");
  EXPECT_EQ(refused(megamoe_group_forward(nullptr, c.calls.data(), 2, nullptr, nullptr, 0)),
            "group is NULL");
  EXPECT_EQ(refused(megamoe_group_forward(c.group, nullptr, 2, nullptr, nullptr, 0)),
            "calls is NULL");
  EXPECT_EQ(refused(megamoe_group_forward(c.group, c.calls.data(), 2, nullptr, nullptr, 2)),
            "streams is NULL");
  EXPECT_EQ(refused(megamoe_layer_inputs(nullptr, nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_inputs(c.layers[0], nullptr)), "views is NULL");
  EXPECT_EQ(refused(megamoe_layer_check(nullptr, nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_config(nullptr, nullptr, 0, nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_memory(c.layers[0], nullptr)), "report is NULL");
  EXPECT_EQ(refused(megamoe_layer_memory_map(nullptr, nullptr, 0, nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_memory_map(c.layers[0], nullptr, 9, nullptr)),
            "text is NULL with capacity = 9");
  EXPECT_EQ(refused(megamoe_layer_synchronize(nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_abort(nullptr)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_set_deadlines(nullptr, 1, 1)), "layer is NULL");
  EXPECT_EQ(refused(megamoe_layer_rank(c.layers[0], nullptr)), "rank is NULL");
  EXPECT_EQ(
      refused(megamoe_layer_forward(nullptr, nullptr, 0, &c.weights, nullptr, nullptr, nullptr)),
      "layer is NULL");
  EXPECT_EQ(
      refused(megamoe_layer_forward(c.layers[0], nullptr, 0, nullptr, nullptr, nullptr, nullptr)),
      "weights is NULL");
  EXPECT_EQ(refused(megamoe_problem_init(nullptr, sizeof p)), "problem is NULL");
  EXPECT_EQ(refused(megamoe_problem_check(nullptr)), "problem is NULL");
  EXPECT_EQ(refused(megamoe_experts_init(nullptr, sizeof c.weights)), "experts is NULL");
  EXPECT_EQ(refused(megamoe_forward_options_init(nullptr, 48)), "options is NULL");
  EXPECT_EQ(refused(megamoe_expert_bytes(MEGAMOE_FP8, 128, 128, nullptr)), "bytes is NULL");
  EXPECT_EQ(refused(megamoe_interleave_rows(nullptr, &number, 128, 2)), "from is NULL");
  EXPECT_EQ(refused(megamoe_interleave_rows(&number, nullptr, 128, 2)), "to is NULL");
}

TEST(CApiMisuse, NullTensorsOfAStage) {
  CCase c;
  const auto stage = [&](const std::uint16_t* x, const std::int64_t* ids, const float* weights,
                         int tokens) {
    return megamoe_layer_stage(c.layers[0], x, ids, weights, tokens, 1.0F, nullptr);
  };
  const std::uint16_t* x = c.hidden_states.data();
  EXPECT_THAT(refused(stage(nullptr, c.ids.data(), c.slot_weights.data(), 1)),
              HasSubstr("hidden_states is null with num_tokens = 1"));
  EXPECT_EQ(refused(stage(x, nullptr, c.slot_weights.data(), 1)),
            "topk_idx is NULL with num_tokens = 1");
  EXPECT_EQ(refused(stage(x, c.ids.data(), nullptr, 1)),
            "topk_weights is NULL with num_tokens = 1");
  EXPECT_THAT(refused(stage(x, c.ids.data(), c.slot_weights.data(), -1)),
              HasSubstr("num_tokens = -1"));
  EXPECT_THAT(refused(stage(x, c.ids.data(), c.slot_weights.data(), 9)),
              HasSubstr("num_tokens = 9"));
  EXPECT_EQ(stage(nullptr, nullptr, nullptr, 0), MEGAMOE_OK) << megamoe_last_error();
}

TEST(CApiMisuse, WrongStructSizes) {
  CCase c;
  megamoe_problem p = CCase::problem();
  megamoe_group* group = nullptr;
  p.size = 0;
  EXPECT_THAT(refused(megamoe_group_create_host(&p, &group)),
              HasSubstr("problem: size = 0 is not a size of this struct; set it to sizeof, 64"));
  p.size = sizeof p - 4;
  EXPECT_THAT(refused(megamoe_problem_check(&p)), HasSubstr("size = 60"));
  p.size = std::numeric_limits<std::size_t>::max();
  EXPECT_THAT(refused(megamoe_problem_check(&p)), HasSubstr("size = 18446744073709551615"));
  EXPECT_THAT(refused(megamoe_problem_init(&p, 3)), HasSubstr("size = 3"));
  c.weights.size = 1;
  ASSERT_EQ(c.stage(0), MEGAMOE_OK);
  ASSERT_EQ(c.stage(1), MEGAMOE_OK);
  EXPECT_THAT(refused(c.forward()), HasSubstr("calls[0]: weights: size = 1"));
  c.weights.size = sizeof c.weights;
  c.calls[0].size = 0;
  EXPECT_THAT(refused(c.forward()), HasSubstr("calls[0]: size = 0"));
  c.calls[0].size = sizeof c.calls[0];
  c.calls[1].size = sizeof c.calls[1] + 8;
  EXPECT_THAT(refused(c.forward()), HasSubstr("calls[1]: size = 48, calls[0] has 40"));
  c.calls[1].size = sizeof c.calls[1];
  megamoe_forward_options options{};
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("options: size = 0"));
  megamoe_input_views views{};
  EXPECT_THAT(refused(megamoe_layer_inputs(c.layers[0], &views)), HasSubstr("views: size = 0"));
  megamoe_call_report report{};
  EXPECT_THAT(refused(megamoe_layer_check(c.layers[0], &report)), HasSubstr("report: size = 0"));
  megamoe_memory_report memory{};
  EXPECT_THAT(refused(megamoe_layer_memory(c.layers[0], &memory)), HasSubstr("report: size = 0"));
  EXPECT_EQ(c.forward(), MEGAMOE_OK) << "nothing has changed: " << megamoe_last_error();
}

/// A struct of a header that is newer than the library.
struct NewerProblem {
  megamoe_problem known;
  std::int32_t added[4];
};

TEST(CApiMisuse, StructsOfANewerHeader) {
  NewerProblem p{};
  std::memset(p.added, 0xFF, sizeof p.added);
  ASSERT_EQ(megamoe_problem_init(&p.known, sizeof p), MEGAMOE_OK);
  EXPECT_EQ(p.known.size, sizeof p);
  EXPECT_THAT(p.added, testing::Each(0));
  const std::size_t size = p.known.size;
  p.known = CCase::problem();
  p.known.size = size;
  EXPECT_EQ(megamoe_problem_check(&p.known), MEGAMOE_OK) << megamoe_last_error();
  p.added[2] = 1;
  EXPECT_THAT(refused(megamoe_problem_check(&p.known)), HasSubstr("byte 72 is set"));
}

TEST(CApiMisuse, ValuesOutsideTheirEnumeration) {
  megamoe_problem p = CCase::problem();
  p.precision = 4;
  EXPECT_EQ(refused(megamoe_problem_check(&p)), "problem: precision = 4 is outside 0..3");
  p = CCase::problem();
  p.activation = -1;
  EXPECT_EQ(refused(megamoe_problem_check(&p)), "problem: activation = -1 is outside 0..2");
  CCase c;
  c.weights.w1_order = 9;
  EXPECT_THAT(refused(c.forward()), HasSubstr("weights: w1_order = 9 is outside 0..1"));
  c.weights.w1_order = MEGAMOE_INTERLEAVED_8;
  megamoe_forward_options options;
  ASSERT_EQ(megamoe_forward_options_init(&options, sizeof options), MEGAMOE_OK);
  options.fast_math = 2;
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("fast_math = 2"));
  std::array<std::size_t, 4> bytes{};
  EXPECT_THAT(refused(megamoe_expert_bytes(MEGAMOE_FP8, 100, 128, bytes.data())),
              HasSubstr("hidden = 100"));
  EXPECT_STREQ(megamoe_status_name(static_cast<megamoe_status>(15)), "unknown status");
}

TEST(CApiMisuse, ValuesThatTheLibraryRefuses) {
  megamoe_problem p = CCase::problem();
  megamoe_group* group = nullptr;
  p.experts = 5;
  EXPECT_THAT(refused(megamoe_group_create_host(&p, &group)), HasSubstr("5"));
  EXPECT_EQ(group, nullptr);
  CCase c;
  megamoe_layer* layer = nullptr;
  EXPECT_THAT(refused(megamoe_group_layer(c.group, 2, &layer)), HasSubstr("local_rank = 2"));
  EXPECT_THAT(refused(megamoe_group_layer(c.group, -1, &layer)), HasSubstr("local_rank = -1"));
  EXPECT_THAT(refused(megamoe_group_forward(c.group, c.calls.data(), 1, nullptr, nullptr, 0)),
              HasSubstr("num_calls = 1, the group has 2"));
  std::array<void*, 3> streams{};
  EXPECT_THAT(
      refused(megamoe_group_forward(c.group, c.calls.data(), 2, nullptr, streams.data(), 3)),
      HasSubstr("num_streams = 3"));
  megamoe_forward_options options;
  ASSERT_EQ(megamoe_forward_options_init(&options, sizeof options), MEGAMOE_OK);
  options.deadline_ns = 0;
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("deadline = 0"));
  options.deadline_ns = 1;
  options.num_sms = -1;
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("num_sms = -1"));
  options.num_sms = 0;
  options.reserved_sms = -2;
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("reserved_sms = -2"));
  options.reserved_sms = -1;
  options.first_deadline_ns = 0;
  EXPECT_EQ(c.forward(&options), MEGAMOE_INVALID_ARGUMENT) << megamoe_last_error();
  options.first_deadline_ns = -1;
  EXPECT_THAT(refused(megamoe_layer_set_deadlines(c.layers[0], 0, 1)), HasSubstr("deadline"));
  EXPECT_EQ(megamoe_layer_set_deadlines(c.layers[0], 1000, 1000), MEGAMOE_OK);
  options.global_num_tokens = 1000;
  EXPECT_THAT(refused(c.forward(&options)), HasSubstr("global_num_tokens = 1000"));
}

TEST(CApiMisuse, DestroyedHandlesAreRefusedNotFollowed) {
  const megamoe_problem p = CCase::problem();
  megamoe_group* group = nullptr;
  megamoe_layer* layer = nullptr;
  ASSERT_EQ(megamoe_group_create_host(&p, &group), MEGAMOE_OK);
  ASSERT_EQ(megamoe_group_layer(group, 1, &layer), MEGAMOE_OK);
  EXPECT_EQ(megamoe_group_destroy(nullptr), MEGAMOE_OK);
  ASSERT_EQ(megamoe_group_destroy(group), MEGAMOE_OK);
  EXPECT_THAT(refused(megamoe_group_destroy(group)), HasSubstr("is no live handle"));
  EXPECT_THAT(refused(megamoe_group_reset(group)), HasSubstr("is no live handle"));
  EXPECT_THAT(refused(megamoe_layer_synchronize(layer)), HasSubstr("is no live handle"));
  // A later group gets other handles.
  CCase other;
  EXPECT_NE(other.group, group);
  EXPECT_THAT(refused(megamoe_group_destroy(group)), HasSubstr("is no live handle"));
  EXPECT_THAT(refused(megamoe_layer_check(layer, nullptr)), HasSubstr("is no live handle"));
  EXPECT_EQ(megamoe_layer_check(other.layers[0], nullptr), MEGAMOE_OK);
}

TEST(CApiMisuse, HandlesOfTheWrongKindAndMadeUpOnes) {
  CCase c;
  EXPECT_THAT(refused(megamoe_group_destroy(reinterpret_cast<megamoe_group*>(c.layers[0]))),
              HasSubstr("is no live handle"));
  EXPECT_THAT(refused(megamoe_layer_abort(reinterpret_cast<megamoe_layer*>(c.group))),
              HasSubstr("is no live handle"));
  for (const std::intptr_t offset : {-1, 1, 8, 63, 1 << 20}) {
    auto* made_up =
        reinterpret_cast<megamoe_layer*>(reinterpret_cast<std::intptr_t>(c.layers[1]) + offset);
    EXPECT_THAT(refused(megamoe_layer_synchronize(made_up)), HasSubstr("is no live handle"));
  }
}

TEST(CApiMisuse, AForwardInTheWrongOrder) {
  CCase c;
  EXPECT_EQ(c.forward(), MEGAMOE_OK) << "nothing staged: no token has an expert";
  c.weights.w1 = nullptr;
  EXPECT_THAT(refused(c.forward()), HasSubstr("null w1"));
  c.weights.w1 = c.w1.data();
  c.weights.w1_order = MEGAMOE_GATE_THEN_UP;
  EXPECT_THAT(refused(c.forward()), HasSubstr("interleave"));
}

TEST(CApiMisuse, ErrorsBelongToTheirThread) {
  EXPECT_EQ(refused(megamoe_group_reset(nullptr)), "group is NULL");
  std::string other = "not run";
  std::thread([&] { other = megamoe_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(megamoe_last_error(), "group is NULL");
}

TEST(CApiMisuse, MemoryThatCannotBeHadIsAStatus) {
  const megamoe_problem p = CCase::problem();
  int failed = 0;
  for (long allocations = 0; allocations < 60; ++allocations) {
    megamoe_status status = MEGAMOE_OK;
    megamoe::let_allocations_fail_after(allocations);
    std::thread([&] {
      megamoe_group* group = nullptr;
      status = megamoe_group_create_host(&p, &group);
      if (status == MEGAMOE_OK) megamoe_group_destroy(group);
    }).join();
    if (!megamoe::an_allocation_failed()) break;
    // Ranks refuse together: what was no memory on one is a system error of the group.
    EXPECT_THAT(status, testing::AnyOf(MEGAMOE_OUT_OF_MEMORY, MEGAMOE_SYSTEM, MEGAMOE_DISAGREEMENT))
        << allocations;
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
