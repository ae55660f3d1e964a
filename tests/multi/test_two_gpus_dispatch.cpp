// The dispatch alone between two GPUs equals the CPU backend's, bit for bit.
#include <gtest/gtest.h>

#include "tests/device/dispatch_pair.hpp"

namespace megamoe {
namespace {

TEST(TwoGpusDispatch, EqualsTheCpu) {
  GpuCase gpu(dispatch_problem(2), gpus_of(2));
  expect_all_dispatches(gpu);
}

}  // namespace
}  // namespace megamoe
