// Decode replays mixed with eager prefill beside another stream's kernels, between two GPUs.
#include <gtest/gtest.h>

#include "tests/device/combined_load.hpp"

namespace megamoe {
namespace {

TEST(TwoGpusCombined, ServesBesideOtherKernels) {
  GpuCase layer(combined_problem(2), gpus_of(2));
  CombinedLoad(layer).run(kCombinedSteps);
}

}  // namespace
}  // namespace megamoe
