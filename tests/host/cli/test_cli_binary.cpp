// Runs the built program: exit statuses and texts as a script sees them.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Result {
  int status;
  std::string out, err;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `arguments` as a shell reads them, after the shell's own `limits`.
Result megamoe(const std::string& arguments, const std::string& limits = "") {
  const std::string base = ::testing::TempDir() + "megamoe_cli_binary_" + std::to_string(getpid());
  const std::string command = limits + "timeout 60 " MEGAMOE_BINARY " " + arguments + " >" + base +
                              ".out 2>" + base + ".err </dev/null";
  const int raw = std::system(command.c_str());
  Result result{WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, contents(base + ".out"),
                contents(base + ".err")};
  std::remove((base + ".out").c_str());
  std::remove((base + ".err").c_str());
  return result;
}

struct BadUsage {
  const char* arguments;
  const char* text;
};

class RefusesBadUsage : public ::testing::TestWithParam<BadUsage> {};

TEST_P(RefusesBadUsage, WithStatusTwoAndOneLine) {
  const Result result = megamoe(GetParam().arguments);
  EXPECT_EQ(result.status, 2) << GetParam().arguments;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(GetParam().text));
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

constexpr BadUsage kPlanCases[] = {
    {"run --hidden 1 --hidden=2", "megamoe run: --hidden is given twice\n"},
    {"plan --model a --model b", "megamoe plan: --model is given twice\n"},
    {"paln", "megamoe: unknown verb 'paln'; did you mean plan?"},
    {"teapot", "unknown verb 'teapot'; known: "},
    {"''", "unknown verb ''"},
    {"--json", "unknown verb '--json'"},
    {"plan", "--hidden is missing; give --model NAME"},
    {"plan --hidden 128 --intermediate 128 --experts 8", "--top-k is missing"},
    {"plan --model deepseek-v3 --ranks 0", "--ranks = 0 is outside 1..72"},
    {"plan --model deepseek-v3 --ranks 73", "--ranks = 73 is outside 1..72"},
    {"plan --model deepseek-v3 --ranks -1", "--ranks = -1 is outside 1..72"},
    {"plan --model deepseek-v3 --ranks two", "--ranks = 'two' is not a whole number"},
    {"plan --model deepseek-v3 --ranks 2x", "--ranks = '2x' is not a whole number"},
    {"plan --model deepseek-v3 --ranks 1e1", "--ranks = '1e1' is not a whole number"},
    {"plan --model deepseek-v3 --ranks 99999999999999999999", "is outside 1..72"},
    {"plan --model deepseek-v3 --ranks", "--ranks needs a value"},
    {"plan --model deepseek-v3 --ranks ''", "--ranks needs a value"},
    {"plan --model deepseek-v3 --ranks= 3", "--ranks needs a value"},
    {"plan --model --json", "--model needs a value"},
    {"plan --model deepseek-v3 --ranks 2 --ranks 4", "--ranks"},
    {"plan --model deepseek-v3 --rank 2", "unknown flag '--rank'; did you mean --ranks"},
    {"plan --model deepseek-v3 --mod x", "unknown flag '--mod'"},
    {"plan --model deepseek-v3 --frobnicate", "unknown flag '--frobnicate'"},
    {"plan --model deepseek-v3 --json=yes", "--json takes no value"},
    {"plan --model deepseek-v3 -r 2", "unexpected argument '-r'"},
    {"plan --model deepseek-v3 extra", "unexpected argument 'extra'"},
    {"plan --model deepseek-v3 ++", "unexpected argument '++'"},
    {"plan --model deepseek-v3 --", "unknown flag '--'"},
    {"plan --model deepseek-v3 --json --map", "--map and --json cannot be given together"},
    {"plan --model deepseek-v9", "did you mean deepseek-v3"},
    {"plan --model \"$(printf 'a\\nb')\"", "unknown model 'a\\x0ab'"},
    {"plan --model deepseek-v3 --precision fp16", "unknown precision 'fp16'; known: fp8, bf16"},
    {"plan --model deepseek-v3 --precision FP8", "unknown precision 'FP8'; did you mean fp8"},
    {"plan --model deepseek-v3 --gpu h200", "unknown GPU 'h200'; did you mean H200"},
    {"plan --model deepseek-v3 --gpu A100", "unknown GPU 'A100'; did you mean H100"},
    {"plan --model deepseek-v3 --tokens -1", "--tokens = -1 is outside 0..131072"},
    {"plan --model deepseek-v3 --tokens 8,", "--tokens = '' is not a whole number"},
    {"plan --model deepseek-v3 --tokens 9000 --capacity 8192",
     "--tokens = 9000 is more than --capacity = 8192"},
    {"plan --model deepseek-v3 --capacity 0", "--capacity = 0 is outside 1..131072"},
    {"plan --hidden 128 --intermediate 128 --experts 10 --top-k 2 --ranks 3",
     "experts = 10 is not a multiple of ranks = 3; the next multiple is 12"},
    {"plan --hidden 100 --intermediate 128 --experts 8 --top-k 2 --ranks 1", "pad it to 128"},
    {"plan --hidden 2880 --intermediate 2944 --experts 8 --top-k 2 --ranks 1", "pad it to 2944"},
    {"plan --model gpt-oss-20b --hidden 2880", "hidden = 2880 is not a multiple of 128"},
    {"plan --hidden 128 --intermediate 2880 --experts 8 --top-k 2 --ranks 1", "pad it to 2944"},
    {"plan --hidden 128 --intermediate 128 --experts 8 --top-k 9 --ranks 1",
     "top_k = 9 is more than experts = 8"},
    {"plan --model deepseek-v3 --top-k 17", "--top-k = 17 is outside 1..16"},
    {"plan --model kimi-k2 --ranks 1", "experts per rank = 384 is outside 1..256"},
    {"plan --model deepseek-v3 --shared-experts 5", "--shared-experts = 5 is outside 0..4"},
};
INSTANTIATE_TEST_SUITE_P(Plan, RefusesBadUsage, ::testing::ValuesIn(kPlanCases));

constexpr const char* kSmall =
    "run --hidden 128 --intermediate 128 --experts 4 --top-k 2 --ranks 2 ";

class RefusesBadRun : public RefusesBadUsage {};

TEST_P(RefusesBadRun, WithStatusTwoAndOneLine) {
  const Result result = megamoe(kSmall + std::string(GetParam().arguments));
  EXPECT_EQ(result.status, 2) << GetParam().arguments;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(GetParam().text));
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

constexpr BadUsage kRunCases[] = {
    {"--tokens 1,2,3", "--tokens lists 3 counts for --ranks = 2; give one, or one per rank"},
    {"--tokens 9 --capacity 8", "--tokens = 9 is more than --capacity = 8"},
    {"--tokens -1", "--tokens = -1 is outside 0..131072"},
    {"--backend cuda", "this build has no CUDA kernels; the nearest that works is cpu"},
    {"--backend gpu", "unknown backend 'gpu'"},
    {"--routing round-robin", "unknown routing 'round-robin'; known: uniform, balanced"},
    {"--routing unifrom", "unknown routing 'unifrom'; did you mean uniform?"},
    {"--routing masked:1.5", "--routing masked = 1.5 is outside 0..1"},
    {"--routing masked:", "--routing masked = '' is not a number"},
    {"--routing masked:P", "--routing masked = 'P' is not a number"},
    {"--seed -1", "--seed = '-1' is not a whole number"},
    {"--seed 18446744073709551616", "--seed = 18446744073709551616 is outside"},
    {"--repeat 0", "--repeat = 0 is outside 1..1000000"},
    {"--deadline 0", "--deadline = 0 is outside"},
    {"--deadline 86401", "--deadline = 86401 is outside 0.001..86400"},
    {"--deadline nan", "--deadline = 'nan' is not a number"},
    {"--deadline 10s", "--deadline = '10s' is not a number"},
    {"--check rows:0", "--check rows = 0 is outside 1.."},
    {"--check some", "unknown check 'some'; known: full, rows:N, none"},
    {"--block-rows 24", "--block-rows = 24 is not one of 8, 16, 32, 64, 128"},
    {"--block-rows 256", "--block-rows = 256 is outside 8..128"},
    {"--waves 5", "--waves = 5 is outside 1..4"},
    {"--ctas 0", "--ctas = 0 is outside 1..1024"},
    {"--ctas 2 --num-sms 2", "--ctas and --num-sms exclude each other"},
    {"--num-sms -1", "--num-sms = -1 is outside 0..1024"},
    {"--layer 3", "--layer is only used with --checkpoint"},
    {"--checkpoint x", "--checkpoint needs --layer L"},
    {"--activation gelu", "unknown activation 'gelu'; known: swiglu, swiglu-oai, situ"},
    {"--virtual --processes", "--virtual and --processes exclude each other"},
    {"--checkpoint x --layer 0", "--hidden and --checkpoint exclude each other"},
    {"--input /nonexistent/file", "/nonexistent/file"},
    {"--output /nonexistent/folder/y --tokens 1", "/nonexistent/folder"},
    {"--precision mxfp4 --hidden 128", "--hidden"},
};
INSTANTIATE_TEST_SUITE_P(Run, RefusesBadRun, ::testing::ValuesIn(kRunCases));

TEST(Program, RunsASmallLayer) {
  const Result result = megamoe(kSmall + std::string("--tokens 3,0 --json"));
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  EXPECT_EQ(nlohmann::json::parse(result.out).at("ok"), true);
}

TEST(Program, WithoutArgumentsShowsItsUsageAndFails) {
  const Result result = megamoe("");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("Usage: megamoe VERB"));
}

TEST(Program, HelpAndVersion) {
  for (const char* help : {"--help", "-h", "plan --help", "plan -h", "plan --ranks x --help"}) {
    const Result result = megamoe(help);
    EXPECT_EQ(result.status, 0) << help;
    EXPECT_THAT(result.out, HasSubstr("Usage: megamoe")) << help;
    EXPECT_EQ(result.err, "") << help;
  }
  const Result version = megamoe("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out, "megamoe " MEGAMOE_VERSION "\n");
}

TEST(Program, PlansAsJson) {
  const Result result = megamoe("plan --model qwen3-30b-a3b --ranks 2 --tokens 8,512 --json");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out).size(), 2U);
}

TEST(Program, SaysWhenItsOutputCannotBeWritten) {
  const int raw = std::system("timeout 60 " MEGAMOE_BINARY
                              " plan --model qwen3-30b-a3b >/dev/full 2>/dev/null");
  EXPECT_EQ(WEXITSTATUS(raw), 1);
}

TEST(RefusesBadPaths, ALoopOfSymbolicLinksIsSaid) {
  const std::string loop = ::testing::TempDir() + "megamoe_loop_" + std::to_string(getpid());
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  const std::string layer = "run --hidden 256 --intermediate 128 --experts 8 --top-k 2 ";
  for (const std::string& arguments :
       {"run --layer 0 --checkpoint " + loop, "run --layer 0 --checkpoint " + loop + "/x",
        layer + "--input " + loop, layer + "--output " + loop + "/y"}) {
    const Result result = megamoe(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(loop));
    EXPECT_THAT(result.err, HasSubstr("Too many levels of symbolic links\n"));
  }
  std::remove(loop.c_str());
}

TEST(RunLimits, AFileThatMayNotGrowIsAnErrorAndLeavesNothing) {
  const std::string folder =
      ::testing::TempDir() + "megamoe_file_limit_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const Result result =
      megamoe(kSmall + ("--tokens 64 --output " + folder + "/y"), "ulimit -f 4; ");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(folder + "/y: cannot write"));
  EXPECT_THAT(result.err, HasSubstr(": File too large\n"));
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "something was left in " << folder;
}

// Limits on a user's processes do not bind root; one on address space, in which a thread's stack
// takes 8 MiB, binds everybody.
TEST(RunLimits, ThreadsThatCannotBeMadeEndTheRunWithALine) {
  const std::string run =
      "run --hidden 256 --intermediate 128 --experts 16 --top-k 4 --tokens 64 --backend cpu "
      "--ranks 2 --ctas 100 ";
  for (const std::string more : {"", "--virtual", "--processes"}) {
    const Result result = megamoe(run + more, "ulimit -s 8192; ulimit -v 400000; ");
    EXPECT_EQ(result.status, 1) << more;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err,
                MatchesRegex(fmt::format("(rank 1: only .*\n)?megamoe run: {}: only [0-9]+ of the "
                                         "{} threads of the call could be made: Resource "
                                         "temporarily unavailable; .*\n",
                                         more == "--virtual" ? "virtual ranks 0..1" : "rank 0",
                                         more == "--virtual" ? 400 : 200)));
  }
  const auto json =
      nlohmann::json::parse(megamoe(run + "--json", "ulimit -s 8192; ulimit -v 400000; ").out);
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_THAT(json.at("fault").get<std::string>(), HasSubstr("threads of the call could be made"));
  EXPECT_EQ(megamoe(run, "ulimit -s 8192; ").status, 0);
}

}  // namespace
