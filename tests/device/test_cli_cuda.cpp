// The run verb on one GPU, in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "host/devices.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::HasSubstr;

Arguments small_run(const Arguments& more) {
  return joined({"run", "--hidden", "640", "--intermediate", "256", "--experts", "16", "--top-k",
                 "4", "--json"},
                more);
}

nlohmann::json run_of(const Arguments& more) { return json_of(small_run(more)); }

TEST(CliCuda, VirtualRanksWithEveryField) {
  for (const char* backend : {"cuda", "auto"}) {
    const auto json = run_of({"--backend", backend, "--virtual", "--ranks", "4", "--tokens",
                              "0,8,48,192", "--repeat", "5", "--check", "full"});
    EXPECT_EQ(json.at("ok"), true);
    EXPECT_EQ(json.at("backend"), "cuda");
    EXPECT_EQ(json.at("bitwise_repeatable"), true);
    EXPECT_EQ(json.at("received_ok"), true);
    EXPECT_EQ(json.at("rows_checked"), 248);
    EXPECT_EQ(json.at("received").size(), 4U);
    EXPECT_LT(json.at("diff"), json.at("diff_bound"));
    EXPECT_LT(json.at("worst_row"), json.at("worst_row_bound"));
    EXPECT_LE(json.at("model_row_of_allowed"), 1.0);
    EXPECT_GT(json.at("time_us"), 0.0);
    EXPECT_GT(json.at("memory_bytes"), 0);
  }
}

TEST(CliCuda, BenchTimesEveryRow) {
  for (const bool flush : {false, true}) {
    Arguments arguments = {"bench",   "--hidden",  "640",      "--intermediate",
                           "256",     "--experts", "16",       "--top-k",
                           "4",       "--tokens",  "0,1,48",   "--ranks",
                           "2",       "--virtual", "--repeat", "5",
                           "--seeds", "3",         "--json"};
    if (flush) arguments.emplace_back("--flush");
    const Result result = megamoe(arguments);
    ASSERT_EQ(result.status, kDone) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    ASSERT_EQ(json.size(), 3U);
    for (const auto& row : json) {
      EXPECT_GT(row.at("time_us"), 1.0) << row;
      EXPECT_LT(row.at("time_us"), 1e4) << row;
      EXPECT_GT(row.at("staged_us"), 1.0) << row;
      EXPECT_LT(row.at("staged_us"), 1e4) << row;
      EXPECT_EQ(row.at("flush"), flush);
      EXPECT_FALSE(row.at("config").get<std::string>().empty());
    }
    EXPECT_LT(json[0].at("time_us"), json[2].at("time_us"));
  }
}

/// `more` with --unfused: its rows must have the time of a chain whose output was right.
void expect_unfused(const Arguments& more) {
  Arguments arguments = {"bench", "--hidden", "640", "--intermediate", "256",    "--experts",
                         "16",    "--top-k",  "4",   "--tokens",       "0,1,48", "--repeat",
                         "5",     "--seeds",  "3",   "--unfused",      "--json"};
  const Result result = megamoe(joined(arguments, more));
  ASSERT_EQ(result.status, kDone) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.size(), 3U);
  if (json[0].at("unfused_us").is_null()) GTEST_SKIP() << json[0].at("unfused_note");
  for (const auto& row : json) {
    EXPECT_GT(row.at("unfused_us"), 1.0) << row;
    EXPECT_LT(row.at("unfused_us"), 1e4) << row;
    EXPECT_LT(row.at("unfused_diff"), 1e-3) << row;
  }
}

TEST(CliCuda, BenchChecksAndTimesTheUnfusedChain) {
  expect_unfused({"--ranks", "1"});
  for (const char* routing : {"uniform", "masked:0.5", "one-rank", "one-sender", "none"}) {
    SCOPED_TRACE(routing);
    expect_unfused({"--ranks", "2", "--virtual", "--routing", routing});
  }
  expect_unfused({"--ranks", "2", "--virtual", "--shared-experts", "1", "--flush"});
}

TEST(CliCuda, BenchChecksAndTimesTheUnfusedChainBetweenGpus) {
  if (find_devices().usable.size() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const char* routing : {"uniform", "one-rank", "none"}) {
    SCOPED_TRACE(routing);
    expect_unfused({"--ranks", "2", "--routing", routing});
  }
}

TEST(CliCuda, OneRankOnOneGpu) {
  const auto json = run_of({"--backend", "cuda", "--block-rows", "128", "--num-sms", "20"});
  EXPECT_EQ(json.at("backend"), "cuda");
  EXPECT_THAT(json.at("config").get<std::string>(), HasSubstr("prefill"));
}

TEST(CliCuda, AutoTakesTheCpuForWhatGpusDoNotRun) {
  EXPECT_EQ(run_of({"--precision", "bf16"}).at("backend"), "cpu");
  EXPECT_EQ(run_of({"--waves", "2"}).at("backend"), "cpu");
  EXPECT_EQ(run_of({"--backend", "cpu"}).at("backend"), "cpu");
}

TEST(CliCuda, RefusesWhatGpusDoNotRunWithTheReason) {
  const auto refusal = [](const Arguments& more) { return refusal_of(small_run(more)); };
  EXPECT_THAT(refusal({"--backend", "cuda", "--precision", "bf16"}), HasSubstr("precision = bf16"));
  EXPECT_THAT(refusal({"--backend", "cuda", "--waves", "2"}), HasSubstr("--waves = 2"));
  EXPECT_THAT(refusal({"--backend", "cuda", "--ctas", "2"}), HasSubstr("--ctas"));
  EXPECT_THAT(refusal({"--backend", "cuda", "--virtual", "--ranks", "16"}),
              HasSubstr("up to 8 virtual ranks"));
  EXPECT_THAT(refusal({"--backend", "cuda", "--virtual", "--ranks", "4", "--num-sms", "3"}),
              HasSubstr("needs at least 4"));
}

}  // namespace
}  // namespace megamoe::cli
