// Many calls on virtual ranks: random ones against the reference, and very many small ones.
#include <gtest/gtest.h>

#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

TEST(FusedMany, RandomCalls) {
  int seed = 0;
  for (const int ranks : {1, 2, 4, 8}) {
    GpuCase layer({.ranks = ranks,
                   .experts = 24,
                   .top_k = 5,
                   .hidden = 384,
                   .intermediate = 256,
                   .max_tokens_per_rank = 120});
    expect_random_calls(layer, 250, static_cast<unsigned>(++seed));
    if (HasFatalFailure()) return;
  }
}

TEST(FusedMany, TwoHundredThousandSmallCalls) {
  GpuCase layer({.ranks = 2,
                 .experts = 4,
                 .top_k = 2,
                 .hidden = 128,
                 .intermediate = 128,
                 .max_tokens_per_rank = 8});
  expect_many_small_calls(layer, 200'000);
}

}  // namespace
}  // namespace megamoe
