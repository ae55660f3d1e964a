#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/kernel_config.hpp"
#include "config/rings.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Problem kFlash{.ranks = 8,
                         .experts = 256,
                         .top_k = 6,
                         .hidden = 4096,
                         .intermediate = 2048,
                         .max_tokens_per_rank = 8192};

TEST(Problem, AcceptsTheModelsShapes) { EXPECT_EQ(why_invalid(kFlash), ""); }

TEST(Problem, NamesTheOffendingValue) {
  const auto reason = [](auto change) {
    Problem p = kFlash;
    change(p);
    return why_invalid(p);
  };
  EXPECT_THAT(reason([](Problem& p) { p.ranks = 0; }), HasSubstr("ranks = 0"));
  EXPECT_THAT(reason([](Problem& p) { p.ranks = 73; }), HasSubstr("ranks = 73"));
  EXPECT_THAT(reason([](Problem& p) { p.experts = 10, p.ranks = 3; }),
              HasSubstr("next multiple is 12"));
  EXPECT_THAT(reason([](Problem& p) { p.experts = 0; }), HasSubstr("experts = 0"));
  EXPECT_THAT(reason([](Problem& p) { p.experts = 512, p.ranks = 1; }),
              HasSubstr("experts per rank = 512"));
  EXPECT_THAT(reason([](Problem& p) { p.top_k = 17; }), HasSubstr("top_k = 17"));
  EXPECT_THAT(reason([](Problem& p) { p.experts = 8, p.top_k = 9; }),
              HasSubstr("top_k = 9 is more than experts = 8"));
  EXPECT_THAT(reason([](Problem& p) { p.hidden = 100; }), HasSubstr("pad it to 128"));
  EXPECT_THAT(reason([](Problem& p) { p.intermediate = 2880; }), HasSubstr("pad it to 2944"));
  EXPECT_THAT(reason([](Problem& p) { p.max_tokens_per_rank = 0; }),
              HasSubstr("max_tokens_per_rank = 0"));
  EXPECT_THAT(reason([](Problem& p) { p.activation.clamp = 0; }), HasSubstr("clamp = 0"));
  EXPECT_THAT(reason([](Problem& p) { p.shared_experts = 5; }), HasSubstr("shared_experts = 5"));
  EXPECT_EQ(reason([](Problem& p) { p.precision = static_cast<Precision>(4); }),
            "precision = 4 is outside 0..3");
  EXPECT_EQ(reason([](Problem& p) { p.activation.kind = static_cast<ActivationKind>(3); }),
            "activation = 3 is outside 0..2");
}

TEST(KernelConfig, EveryBlockSizeOfEveryShapeIsValid) {
  for (int block_rows : {8, 16, 32, 64, 128}) {
    for (int intermediate : {128, 640, 768, 1408, 2048, 3584, 14336}) {
      for (int tokens : {1, 8, 8192}) {
        Problem p = kFlash;
        p.intermediate = intermediate;
        p.max_tokens_per_rank = tokens;
        EXPECT_EQ(why_invalid(p, config_for_block_rows(p, block_rows)), "")
            << block_rows << " " << intermediate;
      }
    }
  }
}

TEST(KernelConfig, ChoiceIgnoresTheCapacity) {
  Problem small = kFlash;
  small.max_tokens_per_rank = 2048;
  for (long tokens : {0L, 8L, 64L, 1024L, 65536L})
    EXPECT_EQ(choose_config(kFlash, tokens), choose_config(small, tokens));
}

TEST(KernelConfig, RefusesALagThatTheActRingCannotHold) {
  KernelConfig c = config_for_block_rows(kFlash, 128);
  c.group_blocks = 1;
  c.lag_blocks = ring_rows(kFlash).act / 128;
  EXPECT_THAT(why_invalid(kFlash, c), HasSubstr("act slots - 1"));
}

TEST(KernelConfig, RefusesGroupsThatTheRingsCannotHold) {
  KernelConfig c = config_for_block_rows(kFlash, 128);
  ASSERT_THAT(why_invalid(kFlash, c), IsEmpty());
  c.lag_blocks += 1;
  EXPECT_THAT(why_invalid(kFlash, c), HasSubstr("not a multiple of group_blocks"));
  c.lag_blocks = c.group_blocks = 16;
  EXPECT_THAT(why_invalid(kFlash, c), HasSubstr("act slots - 16"));
  c.pool_slots = 8;
  EXPECT_THAT(why_invalid(kFlash, c), HasSubstr("group_blocks = 16 is outside 1..8"));
  c.group_blocks = 0;
  EXPECT_THAT(why_invalid(kFlash, c), HasSubstr("group_blocks = 0"));
}

TEST(KernelConfig, RefusesChunksThatACourierCannotHold) {
  KernelConfig c = config_for_block_rows(kFlash, 128);
  c.pull_rows = 16;
  EXPECT_EQ(why_invalid(kFlash, c), "");
  c.pull_rows = 32;
  EXPECT_EQ(why_invalid(kFlash, c), "pull_rows = 32 is more than 16");
}

/// Each limit allows it; all of them together do not.
constexpr Problem kLargest{.ranks = 72,
                           .experts = 72 * 4,
                           .top_k = 16,
                           .hidden = 16384,
                           .intermediate = 32768,
                           .max_tokens_per_rank = 131072};

TEST(KernelConfig, RefusesMoreTicketsThanTheirWordsCount) {
  const std::string blocks_of_8 = why_invalid(kLargest, config_for_block_rows(kLargest, 8));
  EXPECT_THAT(blocks_of_8, HasSubstr("max_tokens_per_rank = 131072"));
  // 72 x 131072 x 16 / 8 + 4 blocks, 256 + 64 tiles
  EXPECT_THAT(blocks_of_8, HasSubstr("18874372 blocks of 8 rows"));
  EXPECT_THAT(blocks_of_8, HasSubstr("6039799040 tickets are more than 2147483648"));
  EXPECT_EQ(why_invalid(kLargest, config_for_block_rows(kLargest, 128)), "");
  EXPECT_EQ(why_invalid(kLargest), blocks_of_8);
}

TEST(KernelConfig, TicketsUpToTheLimitAreAllowed) {
  Problem p = kLargest;
  p.experts = p.ranks;
  p.top_k = 5;  // 1.9e9 tickets
  EXPECT_EQ(why_invalid(p), "");
  p.top_k = 6;  // 2.3e9
  EXPECT_THAT(why_invalid(p), HasSubstr("top_k = 6"));
}

TEST(Rings, NeverExceedTheWorstCaseOfASmallProblem) {
  const Problem tiny{.ranks = 1,
                     .experts = 4,
                     .top_k = 2,
                     .hidden = 128,
                     .intermediate = 128,
                     .max_tokens_per_rank = 8};
  EXPECT_EQ(worst_case_blocks(tiny, 128), 4);
  EXPECT_EQ(ring_rows(tiny).pool, 4 * 128);
}

}  // namespace
}  // namespace megamoe
