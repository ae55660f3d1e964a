// Many calls on virtual ranks: random ones against the reference, and very many small ones.
#include <gtest/gtest.h>

#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

TEST(FusedMany, RandomCalls) {
  int seed = 0;
  for (const int ranks : {1, 2, 4, 8}) {
    GpuCase layer(random_calls_problem(ranks));
    expect_random_calls(layer, 250, static_cast<unsigned>(++seed));
    if (HasFatalFailure()) return;
  }
}

TEST(FusedMany, TwoHundredThousandSmallCalls) {
  GpuCase layer(small_calls_problem(2));
  expect_many_small_calls(layer, 200'000);
}

}  // namespace
}  // namespace megamoe
