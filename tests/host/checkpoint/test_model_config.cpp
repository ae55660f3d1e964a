#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "host/checkpoint/model_config.hpp"
#include "host/checkpoint/tensor_names.hpp"

namespace megamoe {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "dir/config.json");
}

/// The fields of each family's published config that matter here, with its values.
const json kDeepseekV3 = {
    {"model_type", "deepseek_v3"},
    {"hidden_size", 7168},
    {"intermediate_size", 18432},
    {"moe_intermediate_size", 2048},
    {"n_routed_experts", 256},
    {"n_shared_experts", 1},
    {"num_experts_per_tok", 8},
    {"num_hidden_layers", 61},
    {"hidden_act", "silu"},
    {"routed_scaling_factor", 2.5},
    {"quantization_config",
     {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}}}};

json with(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

TEST(ModelConfig, DeepseekV3) {
  const ModelConfig c = parse(kDeepseekV3);
  EXPECT_EQ(c.family->family, ModelFamily::deepseek_v3);
  EXPECT_EQ(c.hidden, 7168);
  EXPECT_EQ(c.intermediate, 2048);
  EXPECT_EQ(c.experts, 256);
  EXPECT_EQ(c.top_k, 8);
  EXPECT_EQ(c.shared_experts, 1);
  EXPECT_EQ(c.num_layers, 61);
  EXPECT_EQ(c.routed_scaling, 2.5F);
  EXPECT_EQ(c.activation, Activation{});
  EXPECT_EQ(c.quantisation, Quantisation::fp8_block_128);
}

TEST(ModelConfig, DeepseekV4) {
  json config = with(kDeepseekV3, "model_type", "deepseek_v4");
  config["expert_dtype"] = "fp4";
  config["swiglu_limit"] = 10;
  const ModelConfig c = parse(config);
  EXPECT_EQ(c.family->family, ModelFamily::deepseek_v4);
  EXPECT_EQ(c.activation, (Activation{.clamp = 10.0F}));
  EXPECT_EQ(c.quantisation, Quantisation::mxfp4);
}

TEST(ModelConfig, GptOss) {
  const ModelConfig c = parse({{"model_type", "gpt_oss"},
                               {"hidden_size", 2880},
                               {"intermediate_size", 2880},
                               {"num_local_experts", 128},
                               {"num_experts_per_tok", 4},
                               {"num_hidden_layers", 36},
                               {"hidden_act", "silu"},
                               {"swiglu_limit", 7.0},
                               {"quantization_config", {{"quant_method", "mxfp4"}}}});
  EXPECT_EQ(c.hidden, 2880);
  EXPECT_EQ(c.intermediate, 2880);
  EXPECT_EQ(c.activation, swiglu_oai(7.0F));
  EXPECT_EQ(c.quantisation, Quantisation::mxfp4);
  EXPECT_EQ(c.shared_experts, 0);
}

TEST(ModelConfig, KimiK3IsALatentInsideAModelWithVision) {
  const ModelConfig c =
      parse({{"model_type", "kimi_k3"},
             {"text_config",
              {{"model_type", "kimi_linear"},
               {"hidden_act", "situ"},
               {"activation_situ_beta", 4.0},
               {"activation_situ_linear_beta", 25.0},
               {"hidden_size", 7168},
               {"routed_expert_hidden_size", 3584},
               {"moe_intermediate_size", 3072},
               {"num_experts", 896},
               {"num_experts_per_token", 16},
               {"num_shared_experts", 2},
               {"num_hidden_layers", 93},
               {"routed_scaling_factor", 1.0},
               {"quantization_config",
                {{"quant_method", "compressed-tensors"}, {"format", "mxfp4-pack-quantized"}}}}}});
  EXPECT_EQ(c.family->family, ModelFamily::kimi_k3);
  EXPECT_EQ(c.model_type, "kimi_k3");
  EXPECT_EQ(c.hidden, 3584);
  EXPECT_EQ(c.top_k, 16);
  EXPECT_EQ(c.shared_experts, 0);  // they work on 7168 channels
  EXPECT_EQ(c.activation,
            (Activation{.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F}));
  EXPECT_EQ(c.quantisation, Quantisation::mxfp4);
}

TEST(ModelConfig, MinimaxMixtralQwenGlm) {
  const ModelConfig m2 = parse({{"model_type", "minimax_m2"},
                                {"hidden_size", 3072},
                                {"intermediate_size", 1536},
                                {"num_local_experts", 256},
                                {"num_experts_per_tok", 8},
                                {"shared_intermediate_size", 0},
                                {"num_hidden_layers", 62}});
  EXPECT_EQ(m2.intermediate, 1536);
  EXPECT_EQ(m2.shared_experts, 0);
  EXPECT_EQ(m2.quantisation, Quantisation::none);

  const ModelConfig m3 = parse({{"model_type", "minimax_m3_vl"},
                                {"quantization_config", {{"quant_method", "mxfp8"}}},
                                {"text_config",
                                 {{"hidden_size", 6144},
                                  {"intermediate_size", 3072},
                                  {"num_local_experts", 128},
                                  {"num_experts_per_tok", 4},
                                  {"n_shared_experts", 1},
                                  {"hidden_act", "swigluoai"},
                                  {"swiglu_alpha", 1.702},
                                  {"swiglu_limit", 7.0},
                                  {"routed_scaling_factor", 2.0},
                                  {"num_hidden_layers", 60}}}});
  EXPECT_EQ(m3.activation, swiglu_oai(7.0F));
  EXPECT_EQ(m3.shared_experts, 1);
  EXPECT_EQ(m3.quantisation, Quantisation::other);
  EXPECT_THAT(m3.quantisation_text, HasSubstr("mxfp8"));

  const ModelConfig mixtral = parse({{"model_type", "mixtral"},
                                     {"hidden_size", 4096},
                                     {"intermediate_size", 14336},
                                     {"num_local_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"num_hidden_layers", 32}});
  EXPECT_EQ(mixtral.intermediate, 14336);

  const ModelConfig qwen = parse({{"model_type", "qwen3_moe"},
                                  {"hidden_size", 2048},
                                  {"intermediate_size", 6144},
                                  {"moe_intermediate_size", 768},
                                  {"num_experts", 128},
                                  {"num_experts_per_tok", 8},
                                  {"num_hidden_layers", 48}});
  EXPECT_EQ(qwen.intermediate, 768);

  for (const char* type : {"glm4_moe", "glm_moe_dsa"}) {
    const ModelConfig glm = parse(with(kDeepseekV3, "model_type", type));
    EXPECT_EQ(glm.family->family, ModelFamily::glm);
  }
  EXPECT_EQ(parse(with(kDeepseekV3, "model_type", "kimi_k2")).family->family, ModelFamily::kimi_k2);
}

TEST(ModelConfig, NullAndZeroMeanNotUsed) {
  EXPECT_EQ(parse(with(kDeepseekV3, "n_shared_experts", nullptr)).shared_experts, 0);
  EXPECT_EQ(parse(with(kDeepseekV3, "swiglu_limit", nullptr)).activation, Activation{});
  EXPECT_EQ(parse(with(kDeepseekV3, "swiglu_limit", 0.0)).activation, Activation{});
  EXPECT_EQ(parse(with(kDeepseekV3, "quantization_config", nullptr)).quantisation,
            Quantisation::none);
}

std::string parse_error(const json& config) {
  const std::string message = file_error_of([&] { (void)parse(config); });
  EXPECT_THAT(message, HasSubstr("file dir/config.json"));
  return message;
}

TEST(ModelConfig, NamesTheFieldAndTheValue) {
  EXPECT_THAT(parse_error(json::array()), HasSubstr("expected an object, found an array of 0"));
  EXPECT_THAT(parse_error(without(kDeepseekV3, "model_type")),
              AllOf(HasSubstr("expected a field model_type"), HasSubstr("gpt_oss")));
  EXPECT_THAT(
      parse_error(with(kDeepseekV3, "model_type", "llama")),
      AllOf(HasSubstr("model_type: expected one of deepseek_v3"), HasSubstr("found \"llama\"")));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "model_type", 3)),
              HasSubstr("model_type: expected a string, found 3"));
  EXPECT_THAT(parse_error(without(kDeepseekV3, "hidden_size")),
              HasSubstr("expected a field hidden_size, found none"));
  // The dense layers' size must not stand in for that of the experts.
  EXPECT_THAT(parse_error(without(kDeepseekV3, "moe_intermediate_size")),
              HasSubstr("expected a field moe_intermediate_size, found none"));
  EXPECT_THAT(parse_error(without(kDeepseekV3, "n_routed_experts")),
              HasSubstr("expected a field n_routed_experts or num_experts or num_local_experts"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "hidden_size", 0)),
              HasSubstr("hidden_size: expected an integer in 1..16384, found 0"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "hidden_size", -5)), HasSubstr("found -5"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "hidden_size", 18446744073709551615ULL)),
              HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "hidden_size", 7168.5)), HasSubstr("found 7168.5"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "num_experts_per_tok", 17)),
              HasSubstr("num_experts_per_tok: expected an integer in 1..16, found 17"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "n_routed_experts", 4)), HasSubstr("found 8 of 4"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "hidden_act", "gelu")),
              HasSubstr("hidden_act: expected silu, swigluoai or situ, found \"gelu\""));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "routed_scaling_factor", -1)),
              HasSubstr("routed_scaling_factor: expected a positive number, found -1"));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "swiglu_limit", "x")),
              HasSubstr("swiglu_limit: expected a positive number, found \"x\""));
  EXPECT_THAT(parse_error(with(kDeepseekV3, "quantization_config", 1)),
              HasSubstr("quantization_config: expected an object, found 1"));
  const std::string deep(10'000, '[');
  EXPECT_THAT(file_error_of([&] { (void)parse_model_config(deep, "c"); }),
              HasSubstr("nested 10000 deep, expected at most 32"));
  EXPECT_THAT(file_error_of([&] { (void)read_model_config("/nowhere/config.json"); }),
              AllOf(HasSubstr("/nowhere/config.json"), HasSubstr("No such file")));
}

TEST(TensorNames, EveryFamily) {
  const auto names = [](const char* type) {
    const FamilyRow& row = *find_family(type);
    return expert_name(row, "", 3, 17, Matrix::gate) + " " +
           expert_name(row, "", 3, 17, Matrix::up) + " " +
           expert_name(row, "", 3, 17, Matrix::down);
  };
  const std::string proj =
      "model.layers.3.mlp.experts.17.gate_proj model.layers.3.mlp.experts.17.up_proj "
      "model.layers.3.mlp.experts.17.down_proj";
  const std::string sparse =
      "model.layers.3.block_sparse_moe.experts.17.w1 model.layers.3.block_sparse_moe.experts.17.w3 "
      "model.layers.3.block_sparse_moe.experts.17.w2";
  EXPECT_EQ(names("deepseek_v3"), proj);
  EXPECT_EQ(names("kimi_k2"), proj);
  EXPECT_EQ(names("qwen3_moe"), proj);
  EXPECT_EQ(names("glm4_moe"), proj);
  EXPECT_EQ(names("minimax_m2"), sparse);
  EXPECT_EQ(names("mixtral"), sparse);
  EXPECT_EQ(names("deepseek_v4"),
            "layers.3.ffn.experts.17.w1 layers.3.ffn.experts.17.w3 layers.3.ffn.experts.17.w2");
  EXPECT_EQ(names("gpt_oss"),
            "model.layers.3.mlp.experts.gate_up_proj model.layers.3.mlp.experts.gate_up_proj "
            "model.layers.3.mlp.experts.down_proj");
  EXPECT_EQ(expert_name(*find_family("kimi_k3"), "language_model.", 1, 895, Matrix::down),
            "language_model.model.layers.1.block_sparse_moe.experts.895.w2");
  EXPECT_EQ(shared_name(*find_family("deepseek_v4"), "", 2, Matrix::up),
            "layers.2.ffn.shared_experts.w3");
  EXPECT_EQ(find_family("llama"), nullptr);
  EXPECT_EQ(find_family(""), nullptr);
}

TEST(TensorNames, NoModelTypeHasTwoRows) {
  std::set<std::string> seen;
  for (const FamilyRow& row : families()) {
    for (const std::string_view type : row.model_types) {
      if (type.empty()) continue;
      EXPECT_TRUE(seen.insert(std::string(type)).second) << type;
    }
  }
}

}  // namespace
}  // namespace megamoe
