// Many calls between two GPUs: random ones against the reference, and very many small ones.
#include <gtest/gtest.h>

#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

TEST(TwoGpusMany, RandomCalls) {
  GpuCase layer({.ranks = 2,
                 .experts = 24,
                 .top_k = 5,
                 .hidden = 384,
                 .intermediate = 256,
                 .max_tokens_per_rank = 120},
                {0, 1});
  expect_random_calls(layer, 1000, 7);
}

TEST(TwoGpusMany, TwoHundredThousandSmallCalls) {
  GpuCase layer({.ranks = 2,
                 .experts = 4,
                 .top_k = 2,
                 .hidden = 128,
                 .intermediate = 128,
                 .max_tokens_per_rank = 8},
                {0, 1});
  expect_many_small_calls(layer, 200'000);
}

TEST(TwoGpusMany, AnyCapacity) {
  const Problem p = {.ranks = 2,
                     .experts = 48,
                     .top_k = 6,
                     .hidden = 640,
                     .intermediate = 384,
                     .max_tokens_per_rank = 50};
  Problem larger = p;
  larger.max_tokens_per_rank = 400;
  const auto inputs = equal_inputs(p, 50, {ref::RoutingKind::uniform}, 12);
  for (const int block_rows : {16, 128}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    std::vector<std::uint16_t> exact, roomy;
    for (const Problem& problem : {p, larger}) {
      GpuCase layer(problem, {0, 1});
      layer.stage(inputs);
      ASSERT_NO_THROW((problem == p ? exact : roomy) = layer.run(with_config(&config)));
    }
    EXPECT_EQ(exact, roomy) << "blocks of " << block_rows;
  }
}

}  // namespace
}  // namespace megamoe
