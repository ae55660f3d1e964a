// The main of tests that need MEGAMOE_TEST_GPUS GPUs: without them it fails at once, and skips
// none.
#include <cstdio>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "host/devices.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const megamoe::Devices found = megamoe::find_devices();
  if (found.usable.size() < MEGAMOE_TEST_GPUS && !::testing::GTEST_FLAG(list_tests)) {
    const std::string text = fmt::format("FAILED: {} usable GPUs of the {} needed: {}\n",
                                         found.usable.size(), MEGAMOE_TEST_GPUS, found.reason);
    std::fputs(text.c_str(), stderr);
    return 1;
  }
  return RUN_ALL_TESTS();
}
