// The dispatch alone between two GPUs equals the CPU backend's, bit for bit.
#include <gtest/gtest.h>

#include "tests/device/dispatch_pair.hpp"

namespace megamoe {
namespace {

TEST(TwoGpusDispatch, EqualsTheCpu) {
  GpuCase gpu(dispatch_problem(2), {0, 1});
  expect_all_dispatches(gpu);
}

}  // namespace
}  // namespace megamoe
