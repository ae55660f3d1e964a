// `megamoe run --checkpoint`, on a small checkpoint in DeepSeek-V3's names whose hidden size needs
// padding.
#include <cstdint>
#include <deque>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "host/checkpoint/safetensors.hpp"
#include "numerics/bf16.hpp"
#include "tests/host/checkpoint/files.hpp"
#include "tests/host/checkpoint/model_folder.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kHidden = 192;
constexpr int kIntermediate = 128;
constexpr int kExperts = 4;

class RunCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "config.json",
               R"({"model_type": "deepseek_v3", "num_hidden_layers": 2, "hidden_size": 192,
                   "moe_intermediate_size": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
                   "n_shared_experts": 1, "hidden_act": "silu", "routed_scaling_factor": 2.5})");
    const std::string layer = "model.layers.1.mlp.";
    for (int e = 0; e < kExperts; ++e) add_expert(layer + "experts." + std::to_string(e));
    add_expert(layer + "shared_experts");
    write_safetensors(file(), tensors_);
  }

  std::string file() const { return folder_ / "model.safetensors"; }

  void add_expert(const std::string& name) {
    add(name + ".gate_proj.weight", kIntermediate, kHidden);
    add(name + ".up_proj.weight", kIntermediate, kHidden);
    add(name + ".down_proj.weight", kHidden, kIntermediate);
  }

  void add(const std::string& name, std::int64_t rows, std::int64_t columns) {
    std::normal_distribution<float> normal(0.0F, 0.08F);
    std::vector<std::uint16_t>& values =
        bytes_.emplace_back(static_cast<std::size_t>(rows * columns));
    for (std::uint16_t& value : values) value = float_to_bf16(normal(random_));
    tensors_.push_back({name, DType::bf16, {rows, columns}, std::as_bytes(std::span(values))});
  }

  Arguments run(const Arguments& more) const {
    return joined({"run", "--json", "--checkpoint", folder_.path(), "--layer", "1"}, more);
  }
  nlohmann::json run_json(const Arguments& more) const { return json_of(run(more)); }
  std::string refusal(const Arguments& more) const { return refusal_of(run(more)); }

  TemporaryFolder folder_;

 private:
  std::mt19937 random_{11};
  std::vector<TensorToWrite> tensors_;
  std::deque<std::vector<std::uint16_t>> bytes_;
};

TEST_F(RunCheckpoint, RunsInItsOwnPrecisionAndPadded) {
  const std::string y = folder_ / "y.safetensors";
  const nlohmann::json json = run_json({"--ranks", "2", "--tokens", "6,3", "--output", y});
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("precision"), "bf16");
  EXPECT_THAT(json.at("notes").dump(), HasSubstr("hidden 192 of deepseek-v3 is padded to 256"));
  EXPECT_THAT(SafetensorsFile(y).at("y").shape, ElementsAre(9, kHidden));
}

TEST_F(RunCheckpoint, TakesInputOfTheModelsSize) {
  const std::string path = folder_ / "input.safetensors";
  const std::vector<float> states(5 * kHidden, 0.5F);
  const TensorToWrite tensor{
      "hidden_states", DType::f32, {5, kHidden}, std::as_bytes(std::span(states))};
  write_safetensors(path, {&tensor, 1});
  const nlohmann::json json = run_json({"--input", path, "--ranks", "4"});
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_THAT(json.at("tokens"), ElementsAre(2, 1, 1, 1));
}

TEST_F(RunCheckpoint, ConvertsWhatCanBeConverted) {
  EXPECT_EQ(run_json({"--precision", "fp8"}).at("precision"), "fp8");
  EXPECT_THAT(refusal({"--precision", "mxfp4"}), HasSubstr("mxfp4"));
}

TEST_F(RunCheckpoint, FusesSharedExpertsWhenAsked) {
  EXPECT_EQ(run_json({"--shared-experts", "1", "--ranks", "2"}).at("ok"), true);
  EXPECT_THAT(refusal({"--shared-experts", "2"}),
              HasSubstr("--shared-experts = 2, layer 1 of " + folder_.path() + " has 1"));
}

// DeepSeek-V4 has MXFP4 routed experts beside FP8 shared ones.
TEST(RunMixedCheckpoint, SaysWhichPrecisionToPass) {
  ModelFolder model({{"model_type", "deepseek_v4"},
                     {"hidden_size", 128},
                     {"moe_intermediate_size", 128},
                     {"n_routed_experts", 2},
                     {"n_shared_experts", 1},
                     {"num_experts_per_tok", 2},
                     {"num_hidden_layers", 1}});
  const auto put = [&](const std::string& expert, DType weights, std::int64_t columns,
                       std::vector<std::int64_t> scales) {
    for (const char* w : {".w1", ".w2", ".w3"}) {
      model.put("layers.0.ffn." + expert + w + ".weight", weights, {128, columns});
      model.put("layers.0.ffn." + expert + w + ".scale", DType::f8_e8m0, scales);
    }
  };
  put("experts.0", DType::i8, 64, {128, 4});
  put("experts.1", DType::i8, 64, {128, 4});
  put("shared_experts", DType::f8_e4m3, 128, {1, 1});
  const std::string& path = model.write();
  const Arguments run = {"run", "--checkpoint", path, "--layer", "0", "--shared-experts", "1"};
  const Result refused = megamoe(run);
  EXPECT_EQ(refused.status, kBadUsage);
  EXPECT_EQ(refused.err.rfind("megamoe run: pass --precision fp8: the shared experts", 0), 0U)
      << refused.err;
  Arguments as_told = run;
  as_told.insert(as_told.end(), {"--precision", "fp8"});
  EXPECT_EQ(megamoe(as_told).status, kDone) << megamoe(as_told).err;
}

TEST_F(RunCheckpoint, RefusesOtherLayersAndRanks) {
  Arguments other = {"run", "--checkpoint", folder_.path(), "--layer", "0"};
  const Result result = megamoe(other);
  EXPECT_EQ(result.status, kBadUsage);
  EXPECT_THAT(result.err, HasSubstr("layer = 0 has no experts"));
  EXPECT_THAT(refusal({"--ranks", "3"}), HasSubstr("experts = 4 is not a multiple of ranks = 3"));
}

TEST_F(RunCheckpoint, NamesTheFileThatIsBad) {
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) / 2);
  EXPECT_THAT(refusal({}), HasSubstr(file()));
  write_file(file(), "junk");
  EXPECT_THAT(refusal({}), HasSubstr(file()));
  write_file(file(), "");
  EXPECT_THAT(refusal({}), HasSubstr(file()));
  std::filesystem::remove(file());
  EXPECT_THAT(refusal({}), HasSubstr(folder_.path()));
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_THAT(megamoe({"run", "--checkpoint", folder_ / "none", "--layer", "0"}).err,
              HasSubstr(folder_ / "none"));
}

TEST_F(RunCheckpoint, NamesTheConfigThatIsBad) {
  write_file(folder_ / "config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(refusal({}), HasSubstr("found \"llama\""));
  write_file(folder_ / "config.json", "{");
  EXPECT_THAT(refusal({}), HasSubstr(folder_ / "config.json"));
}

}  // namespace
}  // namespace megamoe::cli
