#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/run_call.hpp"
#include "cli/run_case.hpp"
#include "cli/run_check.hpp"
#include "cli/run_request.hpp"
#include "host/checkpoint/safetensors.hpp"
#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `run` of a small layer, with more flags.
Arguments small_run(const Arguments& more) {
  return joined({"run", "--hidden", "256", "--intermediate", "128", "--experts", "8", "--top-k",
                 "2", "--json"},
                more);
}

nlohmann::json run_of(const Arguments& more) { return json_of(small_run(more)); }
std::string refusal(const Arguments& more) { return refusal_of(small_run(more)); }

class RunFile : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_ = ::testing::TempDir() + "megamoe_run_" + std::to_string(getpid());
};

TEST(Run, JsonHasThePromisedFields) {
  const nlohmann::json json = run_of({"--ranks", "2", "--tokens", "5,9"});
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("backend"), "cpu");
  EXPECT_EQ(json.at("ranks"), 2);
  EXPECT_THAT(json.at("tokens"), ElementsAre(5, 9));
  EXPECT_LT(json.at("diff").get<double>(), 3e-5) << json;
  EXPECT_LT(json.at("worst_row").get<double>(), 2e-2);
  EXPECT_EQ(json.at("rows_checked"), 14);
  EXPECT_TRUE(json.at("bitwise_repeatable").is_null());
  EXPECT_EQ(json.at("received")[0].get<int>() + json.at("received")[1].get<int>(), 14 * 2);
  EXPECT_GT(json.at("memory_bytes"), 0);
  EXPECT_GT(json.at("time_us"), 0);
}

TEST(Run, EveryPrecisionAndRouting) {
  for (const char* precision : {"fp8", "bf16", "mxfp4", "mxfp8_mxfp4"}) {
    for (const char* routing : {"uniform", "balanced", "one-rank", "one-expert", "skewed",
                                "hot-expert", "hot-rank", "masked:0.4", "none"}) {
      const nlohmann::json json =
          run_of({"--ranks", "2", "--tokens", "7,12", "--precision", precision, "--routing",
                  routing, "--repeat", "2", "--virtual"});
      EXPECT_EQ(json.at("ok"), true) << precision << " " << routing;
      EXPECT_EQ(json.at("bitwise_repeatable"), true);
      EXPECT_EQ(json.at("routing").get<std::string>().rfind(routing, 0), 0U);
    }
  }
}

TEST(Run, TuningChangesNoResult) {
  const double diff = run_of({"--ranks", "2", "--tokens", "40"}).at("diff");
  for (const Arguments& tuning :
       {Arguments{"--block-rows", "8", "--ctas", "1"}, Arguments{"--block-rows", "128"},
        Arguments{"--waves", "3", "--ctas", "2"}, Arguments{"--capacity", "100", "--virtual"},
        Arguments{"--num-sms", "2", "--reserved-sms", "1", "--deadline", "60"}}) {
    Arguments arguments = {"--ranks", "2", "--tokens", "40"};
    arguments.insert(arguments.end(), tuning.begin(), tuning.end());
    EXPECT_EQ(run_of(arguments).at("diff"), diff) << tuning[0] << " " << tuning[1];
  }
}

TEST(Run, ChecksOnlyWhatIsAsked) {
  EXPECT_EQ(run_of({"--tokens", "20", "--check", "rows:3"}).at("rows_checked"), 3);
  EXPECT_EQ(run_of({"--tokens", "20", "--check", "rows:900"}).at("rows_checked"), 20);
  const nlohmann::json none = run_of({"--tokens", "20", "--check", "none"});
  EXPECT_EQ(none.at("rows_checked"), 0);
  EXPECT_TRUE(none.at("diff").is_null());
  EXPECT_EQ(run_of({"--tokens", "0"}).at("rows_checked"), 0);
}

TEST(Run, SharedExpertsAndModels) {
  EXPECT_EQ(run_of({"--tokens", "6", "--shared-experts", "2"}).at("ok"), true);
  const Result text = megamoe({"run", "--model", "gpt-oss-20b", "--hidden", "256", "--intermediate",
                               "128", "--tokens", "4", "--ranks", "4"});
  EXPECT_EQ(text.status, kDone) << text.err << text.out;
  EXPECT_THAT(text.out, HasSubstr("gpt-oss-20b: hidden 256"));
  EXPECT_THAT(text.out, HasSubstr("\nok\n"));
  EXPECT_THAT(text.out, HasSubstr("equal to the reference's counts"));
}

TEST(Run, Activations) {
  for (const char* activation : {"swiglu", "swiglu-oai", "situ"}) {
    const nlohmann::json json = run_of({"--tokens", "6", "--activation", activation});
    EXPECT_EQ(json.at("ok"), true) << activation;
    EXPECT_EQ(json.at("activation"), activation);
  }
  const nlohmann::json model =
      nlohmann::json::parse(megamoe({"run", "--model", "gpt-oss-20b", "--hidden", "256",
                                     "--intermediate", "128", "--tokens", "2", "--json"})
                                .out);
  EXPECT_EQ(model.at("activation"), "swiglu-oai");
  EXPECT_THAT(refusal({"--activation", "swiglu_oai"}),
              HasSubstr("unknown activation 'swiglu_oai'; did you mean swiglu-oai"));
  EXPECT_THAT(refusal({"--activation", "relu"}),
              HasSubstr("unknown activation 'relu'; known: swiglu, swiglu-oai, situ"));
}

TEST(Run, ActivationsDiffer) {
  ProblemFlags flags;
  flags.hidden = flags.intermediate = "128";
  flags.experts = "8";
  flags.top_k = "2";
  EXPECT_EQ(resolve_shape(flags, run_defaults()).problem.activation, Activation{});
  flags.activation = "swiglu-oai";
  EXPECT_EQ(resolve_shape(flags, run_defaults()).problem.activation, swiglu_oai());
  flags.activation = "situ";
  EXPECT_EQ(resolve_shape(flags, run_defaults()).problem.activation.kind, ActivationKind::situ);
  // A model's own constants stay where its activation is asked for.
  flags.model = "deepseek-v4-pro";
  flags.activation = "swiglu";
  EXPECT_EQ(resolve_shape(flags, run_defaults()).problem.activation, Activation{.clamp = 10.0F});
}

// GEMMs that take longer than the deadline of the waits for them.
TEST(Run, AFaultIsAJsonObjectToo) {
  for (const char* how : {"--virtual", "--processes", "--ranks=2"}) {
    Arguments arguments = {"run",   "--hidden", "2048", "--intermediate", "2048", "--experts",
                           "8",     "--top-k",  "4",    "--tokens",       "64",   "--deadline",
                           "0.001", "--ctas",   "1",    "--json",         how};
    if (arguments.back() != "--ranks=2") arguments.push_back("--ranks=2");
    const Result result = megamoe(arguments);
    EXPECT_EQ(result.status, kCheckFailed) << how;
    const nlohmann::json json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json.at("ok"), false);
    EXPECT_EQ(json.at("ranks"), 2);
    EXPECT_THAT(json.at("tokens"), ElementsAre(64, 64));
    EXPECT_THAT(json.at("fault").get<std::string>(), HasSubstr("gave up waiting for"));
    EXPECT_EQ(json.at("rank_faults").size(), 2U);
    EXPECT_THAT(result.err, HasSubstr("gave up waiting for"));
  }
}

TEST(Run, AFaultOfEachRankIsPrinted) {
  const Result result =
      megamoe({"run", "--hidden", "2048", "--intermediate", "2048", "--experts", "8", "--top-k",
               "4", "--tokens", "64", "--deadline", "0.001", "--ctas", "1", "--ranks", "2"});
  EXPECT_EQ(result.status, kCheckFailed);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("rank 0, call 1: "));
  EXPECT_THAT(result.err, HasSubstr("rank 1, call 1: "));
}

TEST(Run, RefusesWhatDoesNotFitTheMachine) {
  const Result result = megamoe({"run", "--hidden", "16384", "--intermediate", "32768", "--experts",
                                 "18432", "--top-k", "1", "--ranks", "72"});
  EXPECT_EQ(result.status, kBadUsage);
  EXPECT_THAT(result.err, HasSubstr("the run needs"));
}

/// Writes hidden states (value token + 1 in every channel) and, if asked, a routing.
void write_input(const std::string& path, std::int64_t tokens, std::int64_t hidden, bool routing) {
  std::vector<std::uint16_t> states;
  for (std::int64_t t = 0; t < tokens; ++t) {
    states.insert(states.end(), static_cast<std::size_t>(hidden),
                  float_to_bf16(static_cast<float>(t + 1)));
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens) * 2);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int32_t& id : ids) id %= 8;
  const std::vector<float> weights(ids.size(), 0.5F);
  std::vector<TensorToWrite> tensors = {
      {"hidden_states", DType::bf16, {tokens, hidden}, std::as_bytes(std::span(states))}};
  if (routing) {
    tensors.push_back({"topk_idx", DType::i32, {tokens, 2}, std::as_bytes(std::span(ids))});
    tensors.push_back({"topk_weights", DType::f32, {tokens, 2}, std::as_bytes(std::span(weights))});
  }
  write_safetensors(path, tensors);
}

TEST_F(RunFile, InputIsDealtToTheRanks) {
  write_input(path_, 11, 256, true);
  EXPECT_THAT(run_of({"--ranks", "4", "--input", path_}).at("tokens"), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(run_of({"--ranks", "2", "--input", path_, "--tokens", "1,10"}).at("tokens"),
              ElementsAre(1, 10));
  EXPECT_THAT(refusal({"--ranks", "2", "--input", path_, "--tokens", "1,9"}),
              HasSubstr("token counts add up to 10 over 2 ranks, but there are 11 tokens"));
  EXPECT_THAT(refusal({"--input", path_, "--hidden", "128"}), HasSubstr("--hidden"));
}

TEST_F(RunFile, InputRoutingIsUsed) {
  write_input(path_, 8, 256, true);
  // Tokens 0..7 visit experts 0..15 modulo 8: two rows for each.
  EXPECT_THAT(run_of({"--ranks", "4", "--input", path_}).at("received"), ElementsAre(4, 4, 4, 4));
  write_input(path_, 8, 256, false);
  EXPECT_THAT(run_of({"--ranks", "4", "--input", path_, "--routing", "none"}).at("received"),
              ElementsAre(0, 0, 0, 0));
}

TEST_F(RunFile, NanAndInfOfTheInputAreExpectedInTheirRows) {
  std::vector<std::uint16_t> states;
  for (int i = 0; i < 6 * 256; ++i)
    states.push_back(float_to_bf16(static_cast<float>(i * 37 % 101 - 50) * 0.01F));
  const std::vector<std::uint16_t> clean = states;
  states[1 * 256 + 3] = 0x7fc0;
  states[2 * 256 + 4] = 0xffff;
  states[3 * 256 + 5] = 0x7f80;
  states[4 * 256 + 6] = 0xff80;
  for (const char* precision : {"fp8", "bf16", "mxfp4", "mxfp8_mxfp4"}) {
    for (const auto& [values, rows] : {std::pair(&clean, 0), {&states, 4}}) {
      write_safetensors(
          path_, std::vector<TensorToWrite>{
                     {"hidden_states", DType::bf16, {6, 256}, std::as_bytes(std::span(*values))}});
      const nlohmann::json json =
          run_of({"--ranks", "2", "--input", path_, "--precision", precision, "--repeat", "2"});
      EXPECT_EQ(json.at("ok"), true) << precision;
      EXPECT_EQ(json.at("rows_checked"), 6);
      EXPECT_EQ(json.at("non_finite_same"), rows * 256) << precision;
      EXPECT_EQ(json.at("non_finite_wrong"), 0);
      EXPECT_EQ(json.at("unwritten"), 0);
      EXPECT_LT(json.at("diff"), 3e-5);
    }
  }
  const Result text = megamoe({"run", "--hidden", "256", "--intermediate", "128", "--experts", "8",
                               "--top-k", "2", "--input", path_});
  EXPECT_THAT(text.out, HasSubstr("1024 values, as in the reference\n"));
  EXPECT_THAT(text.out, HasSubstr("\nok\n"));
}

TEST_F(RunFile, InputThatDoesNotFitIsRefused) {
  write_input(path_, 4, 128, true);
  EXPECT_THAT(refusal({"--input", path_}), HasSubstr("hidden = 256"));
  write_input(path_, 4, 256, true);
  Arguments three = small_run({"--input", path_});
  three[8] = "3";
  EXPECT_THAT(megamoe(three).err, HasSubstr("top_k = 3"));
  std::ofstream(path_) << "junk";
  EXPECT_THAT(refusal({"--input", path_}), HasSubstr(path_));
  EXPECT_THAT(refusal({"--input", path_ + ".missing"}), HasSubstr(path_ + ".missing"));
}

TEST_F(RunFile, OutputReplacesFilesOnly) {
  EXPECT_THAT(refusal({"--output", "/dev/null"}), HasSubstr("not a regular file"));
  ASSERT_EQ(symlink("nowhere", path_.c_str()), 0);
  EXPECT_THAT(refusal({"--output", path_}), HasSubstr("symbolic link"));
}

TEST_F(RunFile, OutputHoldsEveryRankInOrder) {
  const nlohmann::json json =
      run_of({"--ranks", "2", "--tokens", "3,1", "--output", path_, "--seed", "7"});
  const SafetensorsFile file(path_);
  const TensorView y = file.at("y");
  EXPECT_EQ(y.dtype, DType::bf16);
  EXPECT_THAT(y.shape, ElementsAre(4, 256));
  // The same tokens on one rank give the same bits.
  std::vector<std::byte> first(y.bytes.begin(), y.bytes.end());
  run_of({"--tokens", "4", "--output", path_, "--seed", "7"});
  const SafetensorsFile again(path_);
  const TensorView other = again.at("y");
  EXPECT_EQ(first, std::vector<std::byte>(other.bytes.begin(), other.bytes.end()));
  EXPECT_EQ(json.at("seed"), 7);
}

TEST(RowsToCheck, SamplesWithoutRepeatsInOrder) {
  std::vector<ref::Row> all;
  for (int token = 0; token < 500; ++token) all.push_back({.rank = 0, .token = token});
  const auto sample = [&](CheckSpec spec, double flops) {
    std::vector<int> tokens;
    for (const ref::Row& row : rows_to_check(spec, flops, all, 3)) tokens.push_back(row.token);
    return tokens;
  };
  EXPECT_EQ(sample({}, 1e9).size(), 500U);
  const std::vector<int> some = sample({}, 1e11);
  EXPECT_EQ(some.size(), 64U);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_EQ(std::set<int>(some.begin(), some.end()).size(), 64U);
  EXPECT_EQ(sample({.kind = CheckSpec::Kind::full}, 1e11).size(), 500U);
  EXPECT_EQ(sample({.kind = CheckSpec::Kind::none}, 1).size(), 0U);
}

/// A check must turn red when y or a count is wrong.
class CheckSees : public ::testing::Test {
 protected:
  void SetUp() override {
    RunFlags flags;
    flags.problem.hidden = "256";
    flags.problem.intermediate = "128";
    flags.problem.experts = "8";
    flags.problem.top_k = "2";
    flags.problem.ranks = "2";
    flags.problem.tokens = "6";
    request_ = resolve_run(flags);
    run_ = make_run_case(request_, io_);
    output_ = call_layer(request_, run_, io_);
    ASSERT_TRUE(check().ok());
  }
  RunCheck check() { return check_run(request_, run_, output_, io_); }

  std::ostringstream text_;
  Io io_{.out = text_, .err = text_};
  RunRequest request_;
  RunCase run_;
  RunOutput output_;
};

TEST_F(CheckSees, AWrongRow) {
  for (int i = 0; i < 256; ++i) {
    std::uint16_t& value = output_.y[1][4 * 256 + static_cast<std::size_t>(i)];
    value = float_to_bf16(bf16_to_float(value) * 1.05F);
  }
  const RunCheck found = check();
  EXPECT_FALSE(found.ok());
  ASSERT_TRUE(found.worst_at.has_value());
  EXPECT_EQ(found.worst_at->rank, 1);
  EXPECT_EQ(found.worst_at->token, 4);
}

TEST_F(CheckSees, AnUnwrittenValue) {
  output_.y[0][17] = kUnwritten;
  EXPECT_EQ(check().unwritten, 1);
  EXPECT_FALSE(check().ok());
  EXPECT_EQ(check().diff, std::numeric_limits<double>::infinity());
  // Where no row is compared as well.
  request_.check = {.kind = CheckSpec::Kind::none};
  EXPECT_FALSE(check().ok());
}

TEST_F(CheckSees, ANanOrInfThatTheReferenceHasNot) {
  for (const std::uint16_t bad : std::vector<std::uint16_t>{0x7fc0, 0x7f80, 0xff80}) {
    const std::uint16_t good = std::exchange(output_.y[1][300], bad);
    EXPECT_FALSE(check().ok());
    EXPECT_EQ(check().wrong_non_finite, 1);
    output_.y[1][300] = good;
  }
  EXPECT_TRUE(check().ok());
}

TEST_F(CheckSees, AWrongCount) {
  ++output_.expert_rows[3];
  EXPECT_FALSE(check().ok());
  --output_.expert_rows[3];
  ++output_.rows_received[0];
  EXPECT_FALSE(check().received_equal);
}

}  // namespace
}  // namespace megamoe::cli
