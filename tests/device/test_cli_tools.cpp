// doctor and trace on one GPU, in this process.
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::HasSubstr;

TEST(CliDoctorCuda, SaysWhatIsHere) {
  const Result result = megamoe({"doctor", "--json"});
  ASSERT_EQ(result.err, "");
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(result.status, json.at("ok").get<bool>() ? kDone : kCheckFailed) << result.out;
  ASSERT_FALSE(json.at("gpus").empty());
  const auto& gpu = json.at("gpus").at(0);
  EXPECT_EQ(gpu.at("supported"), true) << gpu;
  EXPECT_EQ(gpu.at("arch"), "9.0");
  EXPECT_GT(gpu.at("sm_budget"), 0);
  EXPECT_LE(gpu.at("sm_budget"), gpu.at("sms"));
  EXPECT_GT(gpu.at("free_bytes"), 0);
  EXPECT_LE(gpu.at("free_bytes"), gpu.at("memory_bytes"));
  EXPECT_TRUE(json.at("driver").is_string());
  const std::size_t gpus = json.at("gpus").size();
  EXPECT_EQ(json.at("peers").size(), gpus * (gpus - 1));
  for (const auto& pair : json.at("peers")) {
    if (!pair.at("access").get<bool>() || !pair.at("native_atomics").get<bool>()) continue;
    EXPECT_GT(pair.at("bandwidth_gbs"), 10.0) << pair;
    EXPECT_LT(pair.at("bandwidth_gbs"), 2000.0) << pair;
    EXPECT_GT(pair.at("latency_us"), 0.1) << pair;
    EXPECT_LT(pair.at("latency_us"), 100.0) << pair;
  }
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CliTraceCuda, RecordsEveryRoleOfEveryRank) {
  const std::string base = ::testing::TempDir() + "megamoe_trace_" + std::to_string(getpid());
  const auto summary = json_of({"trace", "--hidden", "640", "--intermediate", "256", "--experts",
                                "16", "--top-k", "4", "--virtual", "--ranks", "2", "--tokens", "24",
                                "--json", "--perfetto", base + ".json", "--svg", base + ".svg"});
  EXPECT_GT(summary.at("length_us"), 1.0);
  EXPECT_LT(summary.at("length_us"), 1e5);
  EXPECT_EQ(summary.at("full_lists"), 0);
  for (const char* activity : {"wait", "pull", "math", "store", "sum"})
    EXPECT_GT(summary.at("warp_us").at(activity), 0.0) << activity;
  const auto json = nlohmann::json::parse(contents(base + ".json"));
  std::size_t events = 0;
  std::map<std::string, int> marks;
  std::map<int, int> ranks;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "i") continue;
    ++events;
    ++marks[event.at("name")];
    ++ranks[event.at("pid")];
  }
  EXPECT_EQ(events, summary.at("events"));
  EXPECT_EQ(ranks.size(), 2U);
  EXPECT_EQ(marks["entered"], marks["left"]) << "every CTA ends";
  EXPECT_EQ(marks["chunk_claimed"], marks["chunk_pulled"]);
  EXPECT_EQ(marks["tile_begun"], marks["tile_computed"]);
  EXPECT_EQ(marks["tile_begun"], marks["tile_stored"]);
  EXPECT_GT(marks["tile_published"], 0);
  EXPECT_THAT(contents(base + ".svg"), HasSubstr("rank 1 CTA 0"));
  std::remove((base + ".json").c_str());
  std::remove((base + ".svg").c_str());
}

}  // namespace
}  // namespace megamoe::cli
