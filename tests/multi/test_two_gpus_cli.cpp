// The run verb with a GPU for each of two ranks, in this process.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

TEST(TwoGpusCli, ARankPerGpuInOneProcess) {
  for (const char* backend : {"cuda", "auto"}) {
    const auto json = json_of(
        {"run", "--hidden",  "640",   "--intermediate",   "256", "--experts", "16",     "--top-k",
         "4",   "--backend", backend, "--ranks",          "2",   "--tokens",  "48,192", "--repeat",
         "5",   "--check",   "full",  "--shared-experts", "1",   "--json"});
    EXPECT_EQ(json.at("ok"), true);
    EXPECT_EQ(json.at("backend"), "cuda");
    EXPECT_EQ(json.at("ranks"), 2);
    EXPECT_EQ(json.at("bitwise_repeatable"), true);
    EXPECT_EQ(json.at("received_ok"), true);
    EXPECT_EQ(json.at("rows_checked"), 240);
    EXPECT_EQ(json.at("received").size(), 2U);
    EXPECT_LT(json.at("diff"), json.at("diff_bound"));
    EXPECT_LT(json.at("worst_row"), json.at("worst_row_bound"));
    EXPECT_LE(json.at("model_row_of_allowed"), 1.0);
    EXPECT_GT(json.at("time_us"), 0.0);
  }
}

}  // namespace
}  // namespace megamoe::cli
