// Decode replays mixed with eager prefill beside another stream's kernels, on virtual ranks.
#include <gtest/gtest.h>

#include "tests/device/combined_load.hpp"

namespace megamoe {
namespace {

class FusedCombined : public ::testing::TestWithParam<int> {};

TEST_P(FusedCombined, ServesBesideOtherKernels) {
  GpuCase layer(combined_problem(GetParam()));
  CombinedLoad(layer).run(kCombinedSteps);
}

INSTANTIATE_TEST_SUITE_P(Virtual, FusedCombined, ::testing::Values(1, 4));

}  // namespace
}  // namespace megamoe
