// The bench verb: its arguments, and what it makes of a measurement. The measuring itself needs a
// GPU: tests/device/test_cli_cuda.cpp.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/bench_result.hpp"
#include "host/devices.hpp"
#include "megamoe/error.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

BenchFlags small_flags() {
  BenchFlags flags;
  flags.problem.hidden = "4096";
  flags.problem.intermediate = "2048";
  flags.problem.experts = "64";
  flags.problem.top_k = "6";
  flags.problem.ranks = "2";
  flags.problem.tokens = "8,512";
  return flags;
}

BenchMeasurement some_times(const char* machine = "NVIDIA H200") {
  return {machine,
          {{8, {180, 170, 190, 200}, {175, 185, 195, 205}, 0.75, "decode"},
           {512, {300, 310, 320, 330}, {310, 320, 330, 340}, 0.25, "prefill"}}};
}

std::string refusal(const Arguments& more) {
  return refusal_of(joined(
      {"bench", "--hidden", "256", "--intermediate", "128", "--experts", "8", "--top-k", "2"},
      more));
}

TEST(Bench, RefusesBadArgumentsNamingTheValue) {
  EXPECT_THAT(refusal({"--tokens", "8,x"}), HasSubstr("'x'"));
  EXPECT_THAT(refusal({"--seeds", "0"}), HasSubstr("--seeds"));
  EXPECT_THAT(refusal({"--weight-sets", "65"}), HasSubstr("65"));
  EXPECT_THAT(refusal({"--repeat", "0"}), HasSubstr("--repeat"));
  EXPECT_THAT(refusal({"--block-rows", "24"}), HasSubstr("24"));
  EXPECT_THAT(refusal({"--routing", "unifrom"}), HasSubstr("uniform"));
  EXPECT_THAT(refusal({"--gpu", "H300"}), HasSubstr("H300"));
  EXPECT_THAT(refusal({"--experts", "9"}), Not(HasSubstr("GPU")));
  EXPECT_THAT(refusal({"--ranks", "3"}), HasSubstr("3"));
  EXPECT_THAT(refusal({"--seed", "18446744073709551615"}), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal({"--chart", "no/such/folder/x.svg"}),
              AllOf(HasSubstr("--chart"), HasSubstr("no/such/folder")));
}

TEST(Bench, WithoutAGpuSaysSoInOneLine) {
  if (!find_devices().usable.empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(refusal({}), HasSubstr("timing needs GPUs: "));
  EXPECT_THAT(refusal({"--json", "--virtual", "--ranks", "2"}), HasSubstr("timing needs GPUs: "));
}

TEST(Bench, HelpListsItsFlags) {
  const Result result = megamoe({"bench", "--help"});
  EXPECT_EQ(result.status, kDone);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("--weight-sets"), HasSubstr("--chart"), HasSubstr("--flush"),
                    HasSubstr("--virtual"), HasSubstr("--unfused")));
}

TEST(Bench, SeedsFollowTheFirst) {
  BenchFlags flags = small_flags();
  EXPECT_EQ(resolve_bench(flags, {}).seeds, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  flags.seed = "40";
  flags.seeds = "2";
  EXPECT_EQ(resolve_bench(flags, {}).seeds, (std::vector<std::uint64_t>{40, 41}));
}

TEST(Bench, JsonIsAListWithThePromisedFields) {
  BenchFlags flags = small_flags();
  flags.seeds = "1";
  const BenchRequest request = resolve_bench(flags, {"--ranks", "2"});
  const auto json = nlohmann::json::parse(bench_json(request, some_times()));
  ASSERT_EQ(json.size(), 2U);
  for (const char* field :
       {"model",         "experts",  "ranks",      "precision",  "tokens",       "time_us",
        "spread_us",     "bound_us", "fraction",   "unfused_us", "staged_us",    "peer_us",
        "mean_bound_us", "seeds",    "machine",    "date",       "command",      "skew_us",
        "tflops",        "hbm_gbs",  "nvlink_gbs", "config",     "unfused_diff", "gain"}) {
    EXPECT_TRUE(json[0].contains(field)) << field;
  }
  EXPECT_EQ(json[0]["tokens"], 8);
  EXPECT_EQ(json[0]["time_us"], 185);
  EXPECT_NEAR(json[0]["spread_us"].get<double>(), 24, 1e-9);  // 173 to 197
  EXPECT_EQ(json[0]["staged_us"], 190);
  EXPECT_EQ(json[0]["command"], "megamoe bench --ranks 2");
  EXPECT_EQ(json[1]["skew_us"], 0.25);
  EXPECT_TRUE(json[0]["model"].is_null());
  EXPECT_TRUE(json[0]["peer_us"].is_null());
  EXPECT_DOUBLE_EQ(json[0]["fraction"].get<double>(),
                   json[0]["bound_us"].get<double>() / json[0]["time_us"].get<double>());
}

TEST(Bench, TheBoundIsThatOfTheBusiestRankUnderItsRouting) {
  BenchFlags flags = small_flags();
  flags.seeds = "1";
  const BenchRequest request = resolve_bench(flags, {});
  const std::vector<BenchRow> rows = bench_rows(request, some_times());
  const Gpu& h200 = *find_gpu("H200");
  const auto loads = loads_of(request, 8, 1);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].rows_received + loads[1].rows_received, 2 * 8 * 6);
  EXPECT_DOUBLE_EQ(*rows[0].bound_us, time_bound(request.problem(), loads, h200.practical).us);
  EXPECT_DOUBLE_EQ(*rows[0].mean_bound_us,
                   time_bound(mean_work(request.problem(), 8), h200.practical, Precision::fp8).us);
  EXPECT_GT(*rows[0].bound_us, *rows[0].mean_bound_us * 0.8);
  EXPECT_NEAR(rows[1].tflops, 6.0 * 4096 * 2048 * 512 * 6 / 315 / 1e6, 40);
}

TEST(Bench, VirtualRanksShareOneGpu) {
  BenchFlags flags = small_flags();
  flags.seeds = "1";
  const double apart = *bench_rows(resolve_bench(flags, {}), some_times())[1].bound_us;
  flags.virtual_ranks = true;
  const BenchRequest request = resolve_bench(flags, {});
  const BenchRow row = bench_rows(request, some_times())[1];
  EXPECT_GT(*row.bound_us, 1.8 * apart);
  EXPECT_EQ(row.nvlink_gbs, 0);
}

TEST(Bench, RatesComeFromTheMachineOrTheFlag) {
  BenchFlags flags = small_flags();
  const BenchRequest request = resolve_bench(flags, {});
  EXPECT_EQ(rates_for(request, "NVIDIA H200")->name, "H200");
  EXPECT_EQ(rates_for(request, "NVIDIA H20")->name, "H20");
  EXPECT_EQ(rates_for(request, "NVIDIA H100 80GB HBM3")->name, "H100");
  EXPECT_EQ(rates_for(request, "NVIDIA L4"), nullptr);
  const auto json = nlohmann::json::parse(bench_json(request, some_times("NVIDIA L4")));
  EXPECT_TRUE(json[0]["bound_us"].is_null());
  EXPECT_TRUE(json[0]["fraction"].is_null());
  EXPECT_THAT(bench_text(request, some_times("NVIDIA L4")), HasSubstr("no rates are known"));
  flags.gpu = "H100";
  EXPECT_EQ(rates_for(resolve_bench(flags, {}), "NVIDIA H200")->name, "H100");
}

TEST(Bench, TextHasARowForEachCountAndTheSeeds) {
  const BenchRequest request = resolve_bench(small_flags(), {});
  const std::string text = bench_text(request, some_times());
  EXPECT_THAT(text, AllOf(HasSubstr("seeds 1,2,3,4,5,6,7,8"), HasSubstr("2 sets of random weights"),
                          HasSubstr("\n8 "), HasSubstr("\n512 "), HasSubstr("NVIDIA H200")));
}

TEST(Bench, ChartIsBalancedXmlWithinItsFrame) {
  BenchMeasurement times = some_times("<GPU> & co");
  times.rows.insert(times.rows.begin(), {0, {10}, {12}, 0, ""});
  const std::string svg = bench_chart(resolve_bench(small_flags(), {}), times);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;GPU&gt; &amp; co"), HasSubstr("</svg>\n"),
                         Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  std::size_t curves = 0;
  for (std::size_t at = svg.find("<path"); at != std::string::npos; at = svg.find("<path", at + 1))
    ++curves;
  EXPECT_EQ(curves, 2U);  // no rates, so no bound
  EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>'));
}

TEST(Bench, Percentiles) {
  EXPECT_EQ(percentile({}, 50), 0);
  EXPECT_EQ(percentile({7}, 90), 7);
  EXPECT_EQ(percentile({3, 1, 2}, 50), 2);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 50), 2.5);
  EXPECT_EQ(percentile({1, 2}, 100), 2);
}

TEST(Bench, ShortModelNamesAreTheirModels) {
  EXPECT_EQ(find_model("flash").name, "deepseek-v4-flash");
  EXPECT_EQ(find_model("pro").name, "deepseek-v4-pro");
  EXPECT_EQ(find_model("v3").name, "deepseek-v3");
}

}  // namespace
}  // namespace megamoe::cli
