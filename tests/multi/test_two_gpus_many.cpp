// Many calls between two GPUs: random ones against the reference, and very many small ones.
#include <gtest/gtest.h>

#include "tests/device/many_calls.hpp"

namespace megamoe {
namespace {

TEST(TwoGpusMany, RandomCalls) {
  GpuCase layer(random_calls_problem(2), gpus_of(2));
  expect_random_calls(layer, 1000, 7);
}

TEST(TwoGpusMany, TwoHundredThousandSmallCalls) {
  GpuCase layer(small_calls_problem(2), gpus_of(2));
  expect_many_small_calls(layer, 200'000);
}

TEST(TwoGpusMany, AnyCapacity) {
  expect_any_capacity({50, 200, 400},
                      [](const Problem& p) { return std::make_unique<GpuCase>(p, gpus_of(2)); });
}

}  // namespace
}  // namespace megamoe
