#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/models.hpp"
#include "cli/plan.hpp"
#include "layout/local_layout.hpp"
#include "layout/symmetric_layout.hpp"
#include "megamoe/error.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json plan_of(Arguments arguments) {
  arguments.insert(arguments.begin(), "plan");
  arguments.emplace_back("--json");
  const Result result = megamoe(arguments);
  EXPECT_EQ(result.status, kDone) << result.err;
  EXPECT_EQ(result.err, "");
  return nlohmann::json::parse(result.out);
}

TEST(Plan, EveryModelOnEveryNumberOfRanks) {
  int planned = 0;
  for (const ModelRow& row : models()) {
    for (const int ranks : {1, 2, 8, 72}) {
      for (const char* precision : {"fp8", "bf16", "mxfp4"}) {
        for (const Gpu& gpu : gpus()) {
          const bool fits = row.experts % ranks == 0 && row.experts / ranks <= kMaxExpertsPerRank;
          const Result result =
              megamoe({"plan", "--model", std::string(row.name), "--ranks", std::to_string(ranks),
                       "--precision", precision, "--gpu", std::string(gpu.name), "--json"});
          ASSERT_EQ(result.status, fits ? kDone : kBadUsage) << row.name << " " << ranks;
          if (!fits) continue;
          const nlohmann::json json = nlohmann::json::parse(result.out);
          ASSERT_EQ(json.size(), 7U);
          for (const nlohmann::json& entry : json) {
            EXPECT_GT(entry.at("bound_us").get<double>(), 0);
            EXPECT_LE(entry.at("bound_peak_us"), entry.at("bound_us"));
            EXPECT_LE(entry.at("bound_dedup_us"), entry.at("bound_us"));
            ++planned;
          }
        }
      }
    }
  }
  EXPECT_GT(planned, 16 * 2 * 3 * 5 * 7);
}

TEST(Plan, JsonHasThePromisedFields) {
  const nlohmann::json json = plan_of({"--model", "deepseek-v3", "--tokens", "128"});
  ASSERT_TRUE(json.is_object());
  for (const char* field :
       {"bytes", "flops", "bound_us", "symmetric_bytes", "local_bytes", "config"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  const Problem p{.ranks = 8,
                  .experts = 256,
                  .top_k = 8,
                  .hidden = 7168,
                  .intermediate = 2048,
                  .max_tokens_per_rank = 128};
  EXPECT_EQ(json["symmetric_bytes"].get<std::size_t>(), symmetric_layout(p).bytes);
  EXPECT_EQ(json["local_bytes"].get<std::size_t>(), local_layout(p).bytes);
  EXPECT_EQ(json["config"]["block_rows"], choose_config(p, 128 * 8).block_rows);
  EXPECT_NEAR(json["bound_us"].get<double>(), 340, 1);
  EXPECT_DOUBLE_EQ(json["flops"], 6.0 * 7168 * 2048 * 128 * 8);
}

TEST(Plan, SeveralCountsMakeAListWithOneLayout) {
  const nlohmann::json json = plan_of({"--model", "glm-5", "--tokens", "0,8,192"});
  ASSERT_TRUE(json.is_array());
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["bound_us"], 0.0);
  EXPECT_EQ(json[1]["tokens"], 8);
  EXPECT_EQ(json[2]["capacity"], 192);
  EXPECT_EQ(json[0]["symmetric_bytes"], json[2]["symmetric_bytes"]);
  const nlohmann::json larger =
      plan_of({"--model", "glm-5", "--tokens", "8", "--capacity", "8192"});
  EXPECT_GT(larger["symmetric_bytes"], json[1]["symmetric_bytes"]);
  EXPECT_EQ(larger["bound_us"], json[1]["bound_us"]);
}

TEST(Plan, PadsAModelAndSaysSo) {
  const Result text = megamoe({"plan", "--model", "gpt-oss-120b"});
  EXPECT_THAT(text.out, HasSubstr("hidden 2880 of gpt-oss-120b is padded to 2944"));
  EXPECT_THAT(text.out, HasSubstr("intermediate 2880 of gpt-oss-120b is padded to 2944"));
  const nlohmann::json json = plan_of({"--model", "gpt-oss-20b", "--tokens", "1"});
  EXPECT_EQ(json["hidden"], 2944);
  EXPECT_THAT(json["notes"].dump(), HasSubstr("padded to 2944"));
}

TEST(Plan, OverridesStandBesideAModel) {
  const nlohmann::json json =
      plan_of({"--model", "deepseek-v4-flash", "--experts", "64", "--ranks", "2", "--tokens=8"});
  EXPECT_EQ(json["experts"], 64);
  EXPECT_EQ(json["hidden"], 4096);
  EXPECT_EQ(json["model"], "deepseek-v4-flash");
}

TEST(Plan, SharedExpertsAreCountedWhenAsked) {
  const Result plain = megamoe({"plan", "--model", "deepseek-v3"});
  EXPECT_THAT(plain.out, HasSubstr("--shared-experts 1 fuses it"));
  const Result fused = megamoe({"plan", "--model", "deepseek-v3", "--shared-experts", "1"});
  EXPECT_THAT(fused.out, Not(HasSubstr("fuses")));
  const double routed = plan_of({"--model", "deepseek-v3", "--tokens", "8"})["flops"];
  const double both =
      plan_of({"--model", "deepseek-v3", "--tokens", "8", "--shared-experts", "1"})["flops"];
  EXPECT_DOUBLE_EQ(both / routed, 9.0 / 8.0);
}

TEST(Plan, BlackwellRunsItsOwnFormat) {
  const nlohmann::json json =
      plan_of({"--model", "kimi-k2", "--gpu", "B200", "--precision", "mxfp4", "--tokens", "8"});
  EXPECT_EQ(json["precision"], "mxfp8_mxfp4");
  EXPECT_THAT(json["notes"].dump(), HasSubstr("assumed, not measured"));
  const nlohmann::json fp8 = plan_of({"--model", "kimi-k2", "--gpu", "B200", "--tokens", "8"});
  EXPECT_THAT(fp8["notes"].dump(), HasSubstr("no fp8 kernel for B200"));
  const Result refused =
      megamoe({"plan", "--model", "kimi-k2", "--gpu", "H100", "--precision", "mxfp8_mxfp4"});
  EXPECT_EQ(refused.status, kBadUsage);
  EXPECT_EQ(refused.err,
            "megamoe plan: H100 cannot run mxfp8_mxfp4; the nearest that it runs is mxfp4\n");
}

TEST(Plan, WarnsBeyondTheNvlinkDomain) {
  const Arguments arguments = {"plan", "--model", "kimi-k2", "--ranks", "64"};
  EXPECT_THAT(megamoe(arguments).out, HasSubstr("64 ranks are more than the 8 H200 GPUs"));
  Arguments rack = arguments;
  rack.insert(rack.end(), {"--gpu", "B200", "--precision", "bf16"});
  EXPECT_THAT(megamoe(rack).out, Not(HasSubstr("ranks are more")));
}

TEST(Plan, MapNamesTheBuffers) {
  const Result result = megamoe({"plan", "--model", "mixtral-8x7b", "--tokens", "8", "--map"});
  EXPECT_EQ(result.status, kDone);
  for (const char* buffer : {"topk_idx", "combine", "pool", "act"}) {
    EXPECT_THAT(result.out, HasSubstr(buffer));
  }
}

TEST(Plan, HelpListsEveryFlag) {
  const Result result = megamoe({"plan", "--help"});
  EXPECT_EQ(result.status, kDone);
  for (const char* flag :
       {"--model", "--hidden", "--intermediate", "--experts", "--top-k", "--precision", "--ranks",
        "--tokens", "--capacity", "--gpu", "--map", "--json", "deepseek-v3", "Examples"}) {
    EXPECT_THAT(result.out, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace megamoe::cli
