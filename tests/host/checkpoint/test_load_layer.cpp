#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megamoe/checkpoint.hpp"
#include "model_folder.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kExpert0 = "model.layers.0.mlp.experts.0";
const std::string kOss = "model.layers.0.mlp.experts.";

std::string load_error(ModelFolder& model, const LoadOptions& options = {},
                       ErrorCode code = ErrorCode::invalid_file, int layer = 0) {
  const std::string& path = model.write();
  const std::string message = file_error_of([&] { (void)load_layer(path, layer, options); }, code);
  EXPECT_THAT(message, HasSubstr(path));
  return message;
}

std::string conversion_error(ModelFolder& model, Precision wanted) {
  LoadOptions options;
  options.precision = wanted;
  return load_error(model, options, ErrorCode::unsupported);
}

// Scales of a small matrix have the same shape for blocks of many sizes.
TEST(LoadLayer, RefusesOtherBlocksThanThoseThatItReadsScalesWith) {
  using nlohmann::json;
  for (const json& block : {json::array({64, 128}), json::array({128, 64}), json::array({1, 128}),
                            json::array({256, 256}), json::array({128}), json(128)}) {
    for (const char* method : {"fp8", "fbgemm_fp8"}) {
      ModelFolder model = deepseek_v3(128, 128, 2, 1);
      model.config["quantization_config"] = {{"quant_method", method},
                                             {"weight_block_size", block}};
      EXPECT_THAT(load_error(model),
                  AllOf(HasSubstr("config.json: quantization_config.weight_block_size: expected "
                                  "[128,128] for the FP8 weights of "),
                        HasSubstr("found " + block.dump())));
    }
  }
  ModelFolder model = deepseek_v3(128, 128, 2, 1);
  model.config["quantization_config"] = {{"quant_method", "fp8"},
                                         {"weight_block_size", {128, 128}}};
  EXPECT_EQ(load_layer(model.write(), 0).routed.precision, Precision::fp8);
}

TEST(LoadLayer, SaysWhatItLoaded) {
  ModelFolder model = deepseek_v3(128, 256, 6, 2);
  model.config["routed_scaling_factor"] = 2.5;
  LoadOptions options;
  options.ranks = 3;
  options.rank = 1;
  const LoadedLayer layer = load_layer(model.write(), 0, options);
  EXPECT_EQ(layer.family, "deepseek-v3");
  EXPECT_EQ(layer.hidden, 128);
  EXPECT_EQ(layer.intermediate, 256);
  EXPECT_EQ(layer.experts, 6);
  EXPECT_EQ(layer.top_k, 1);
  EXPECT_EQ(layer.first_expert, 2);
  EXPECT_EQ(layer.routed_scaling, 2.5F);
  const ExpertTensors routed = layer.routed.view();
  EXPECT_EQ(routed.precision, Precision::fp8);
  EXPECT_EQ(routed.num_experts, 2);
  EXPECT_EQ(routed.w1_order, W1Order::interleaved_8);
  EXPECT_EQ(routed.b1, nullptr);
  ASSERT_TRUE(layer.shared.has_value());
  EXPECT_EQ(layer.shared->num_experts, 2);
  options.shared = false;
  EXPECT_FALSE(load_layer(model.write(), 0, options).shared.has_value());
}

TEST(LoadLayer, FindsTheNamesOfModelsThatSee) {
  ModelFolder model({{"model_type", "minimax_m3_vl"},
                     {"text_config",
                      {{"hidden_size", 128},
                       {"intermediate_size", 128},
                       {"num_local_experts", 1},
                       {"num_experts_per_tok", 1},
                       {"hidden_act", "swigluoai"},
                       {"num_hidden_layers", 5}}}});
  for (const char* name : {"w1", "w2", "w3"}) {
    model.put(
        "language_model.model.layers.4.block_sparse_moe.experts.0." + std::string(name) + ".weight",
        DType::bf16, {128, 128});
  }
  EXPECT_EQ(load_layer(model.write(), 4).routed.precision, Precision::bf16);
}

TEST(LoadLayer, ProgressRisesToOne) {
  ModelFolder model = deepseek_v3(128, 128, 4, 1);
  std::vector<double> seen;
  LoadOptions options;
  options.ranks = 2;
  options.progress = [&](double done) { seen.push_back(done); };
  (void)load_layer_all_ranks(model.write(), 0, options);
  ASSERT_EQ(seen.size(), 6U);  // two ranks with two experts and the shared one
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(LoadLayer, ScalesOfPaddingRepeatTheirNeighbours) {
  ModelFolder model = gpt_oss(160, 96, 1);
  const LoadedLayer layer = load_layer(model.write(), 0);
  const OwnedExperts& e = layer.routed;
  ASSERT_EQ(e.hidden, 256);
  ASSERT_EQ(e.intermediate, 128);
  const auto w1_scale = [&](int row, int group) {
    return e.w1_scales[static_cast<std::size_t>(interleaved_row(row, 128) * 8 + group)];
  };
  for (const int half : {0, 128}) {
    for (int row = 0; row < 128; ++row) {
      for (int group = 5; group < 8; ++group)
        EXPECT_EQ(w1_scale(half + row, group), w1_scale(half + row, 4)) << row;
      EXPECT_EQ(w1_scale(half + std::max(row, 95), 0), w1_scale(half + 95, 0)) << row;
    }
  }
  for (int row = 0; row < 256; ++row) {
    const auto* scales = e.w2_scales.data() + static_cast<std::ptrdiff_t>(row) * 4;
    EXPECT_EQ(scales[3], scales[2]) << row;
    if (row < 160) continue;
    EXPECT_EQ(std::memcmp(scales, e.w2_scales.data() + std::ptrdiff_t{159} * 4, 4), 0) << row;
  }
}

TEST(LoadLayer, RefusesRanksAndSizes) {
  ModelFolder model = deepseek_v3(160, 96, 6, 0);
  constexpr ErrorCode kArgument = ErrorCode::invalid_argument;
  EXPECT_THAT(file_error_of([&] { (void)load_layer(model.write(), 0, {.ranks = 0}); }, kArgument),
              HasSubstr("ranks = 0 is outside 1..72"));
  EXPECT_THAT(file_error_of([&] { (void)load_layer(model.write(), 0, {.ranks = 2, .rank = 2}); },
                            kArgument),
              HasSubstr("rank = 2 is outside 0..1"));
  EXPECT_THAT(load_error(model, {.ranks = 4}, kArgument),
              HasSubstr("experts = 6 is not a multiple of ranks = 4; the next multiple is 8"));
  EXPECT_THAT(load_error(model, {.pad = false}, kArgument),
              HasSubstr("hidden = 160 is not a multiple of 128; pad it to 256"));
  model.config["hidden_size"] = 128;
  EXPECT_THAT(load_error(model, {.pad = false}, kArgument),
              HasSubstr("intermediate = 96 is not a multiple of 128; pad it to 128"));
}

TEST(LoadLayer, RefusesALayerWithoutExperts) {
  ModelFolder model = deepseek_v3(128, 128, 1, 0);
  for (const int layer : {-1, 1, 7}) {
    EXPECT_THAT(load_error(model, {}, ErrorCode::invalid_argument, layer),
                AllOf(HasSubstr("layer = " + std::to_string(layer) + " has no experts"),
                      HasSubstr("the model has 1 layers")));
  }
}

TEST(LoadLayer, RefusesMissingFilesAndTensors) {
  ModelFolder model = deepseek_v3(128, 128, 2, 0);
  model.remove("model.layers.0.mlp.experts.1.up_proj.weight");
  EXPECT_THAT(load_error(model), HasSubstr("tensor model.layers.0.mlp.experts.1.up_proj.weight"));

  ModelFolder no_scale = deepseek_v3(128, 128, 1, 0);
  no_scale.remove(kExpert0 + ".down_proj.weight_scale_inv");
  EXPECT_THAT(load_error(no_scale),
              HasSubstr("tensor " + kExpert0 + ".down_proj.weight_scale_inv"));

  ModelFolder no_shared = deepseek_v3(128, 128, 1, 1);
  no_shared.remove("model.layers.0.mlp.shared_experts.gate_proj.weight");
  EXPECT_THAT(load_error(no_shared), HasSubstr("model.layers.0.mlp.shared_experts.gate_proj"));

  const std::string& path = model.write();
  std::filesystem::remove(path + "/config.json");
  EXPECT_THAT(file_error_of([&] { (void)load_layer(path, 0); }),
              AllOf(HasSubstr("config.json"), HasSubstr("No such file")));
}

TEST(LoadLayer, RefusesOtherShapesAndDtypes) {
  ModelFolder wide = deepseek_v3(128, 128, 1, 0);
  wide.config["hidden_size"] = 256;
  EXPECT_THAT(load_error(wide), HasSubstr("expected F8_E4M3 [128, 256], found F8_E4M3 [128, 128]"));

  ModelFolder blocks = deepseek_v3(256, 128, 1, 0);
  blocks.put(kExpert0 + ".up_proj.weight_scale_inv", DType::f32, {1, 4});
  EXPECT_THAT(load_error(blocks),
              AllOf(HasSubstr("up_proj.weight_scale_inv"),
                    HasSubstr("expected F32 or BF16 or F8_E8M0 [1, 2], found F32 [1, 4]")));

  ModelFolder channels = deepseek_v3(128, 128, 1, 0);
  channels.remove(kExpert0 + ".gate_proj.weight_scale_inv");
  channels.put(kExpert0 + ".gate_proj.weight_scale", DType::bf16, {128, 1});
  EXPECT_THAT(load_error(channels),
              AllOf(HasSubstr("expected one scale per 128x128 block"),
                    HasSubstr("gate_proj.weight_scale of BF16 [128, 1]"),
                    HasSubstr("a BF16 checkpoint of the model can be quantised at load")));

  ModelFolder half = mixtral(128, 128, 1);
  half.put("model.layers.0.block_sparse_moe.experts.0.w1.weight", DType::f16, {128, 128});
  EXPECT_THAT(load_error(half),
              HasSubstr("expected BF16, F8_E4M3 or MXFP4 codes in U8 or I8, found F16 [128, 128]"));

  ModelFolder mixed = deepseek_v3(128, 128, 2, 0);
  mixed.put("model.layers.0.mlp.experts.1.down_proj.weight", DType::bf16, {128, 128});
  EXPECT_THAT(load_error(mixed), AllOf(HasSubstr("experts.1.down_proj.weight: expected FP8 as in"),
                                       HasSubstr("found BF16")));
}

TEST(LoadLayer, RefusesBadFusedTensors) {
  ModelFolder odd = gpt_oss(128, 128, 2);
  odd.config["hidden_size"] = 144;
  EXPECT_THAT(load_error(odd), HasSubstr("expected a multiple of 32 columns for MXFP4, found 144"));

  ModelFolder experts = gpt_oss(128, 128, 2);
  experts.config["num_local_experts"] = 3;
  EXPECT_THAT(load_error(experts),
              HasSubstr("expected U8 [3, 256, 4, 16], found U8 [2, 256, 4, 16]"));

  ModelFolder scales = gpt_oss(128, 128, 2);
  scales.put(kOss + "down_proj_scales", DType::u8, {2, 128, 8});
  EXPECT_THAT(load_error(scales),
              HasSubstr("expected U8 or F8_E8M0 [2, 128, 4], found U8 [2, 128, 8]"));

  ModelFolder bias = gpt_oss(128, 128, 2);
  bias.put(kOss + "gate_up_proj_bias", DType::bf16, {2, 128});
  EXPECT_THAT(load_error(bias), HasSubstr("expected BF16 or F32 [2, 256], found BF16 [2, 128]"));

  ModelFolder one_bias = gpt_oss(128, 128, 2);
  one_bias.remove(kOss + "down_proj_bias");
  EXPECT_THAT(load_error(one_bias), HasSubstr("expected biases of both matrices or of none"));
}

TEST(LoadLayer, NamesBothFormatsAndTheNearest) {
  ModelFolder fp8 = deepseek_v3(128, 128, 1, 0);
  EXPECT_THAT(conversion_error(fp8, Precision::bf16),
              HasSubstr("FP8 weights cannot be loaded as bf16; the nearest that works is fp8"));
  EXPECT_THAT(conversion_error(fp8, Precision::mxfp4),
              HasSubstr("FP8 weights cannot be loaded as mxfp4; the nearest that works is fp8"));
  ModelFolder bf16 = mixtral(128, 128, 1);
  EXPECT_THAT(conversion_error(bf16, Precision::mxfp4),
              HasSubstr("BF16 weights cannot be loaded as mxfp4; the nearest that works is fp8"));
  ModelFolder mxfp4 = gpt_oss(128, 128, 1);
  EXPECT_THAT(conversion_error(mxfp4, Precision::bf16),
              HasSubstr("MXFP4 weights cannot be loaded as bf16; the nearest that works is mxfp4"));
  LoadOptions blackwell;
  blackwell.precision = Precision::mxfp8_mxfp4;
  EXPECT_EQ(load_layer(mxfp4.write(), 0, blackwell).routed.precision, Precision::mxfp8_mxfp4);
}

TEST(LoadLayer, Mxfp4BecomesFp8ExactlyOrNot) {
  // One row whose groups differ by 2^14 fits e4m3 beside one scale; by 2^15 it does not.
  for (const int apart : {14, 15}) {
    ModelFolder model = gpt_oss(128, 128, 1);
    std::vector<std::uint8_t> codes(std::size_t{256} * 64, 0x11);  // 0.5, the smallest
    std::vector<std::uint8_t> scales(std::size_t{256} * 4, 120);
    codes[0] = 0x77;  // 6, the largest
    scales[0] = static_cast<std::uint8_t>(120 + apart);
    model.put_bytes(kOss + "gate_up_proj_blocks", DType::u8, {1, 256, 4, 16}, codes);
    model.put_bytes(kOss + "gate_up_proj_scales", DType::u8, {1, 256, 4}, scales);
    if (apart == 14) {
      LoadOptions options;
      options.precision = Precision::fp8;
      EXPECT_EQ(load_layer(model.write(), 0, options).routed.precision, Precision::fp8);
    } else {
      EXPECT_THAT(conversion_error(model, Precision::fp8),
                  AllOf(HasSubstr("MXFP4 cannot become fp8 exactly: in the 128x128 block at row 0, "
                                  "column 0 the UE8M0 scales reach from 120 to 135"),
                        HasSubstr("mxfp4 works")));
    }
  }
}

TEST(LoadLayer, RefusesToCutSharedExpertsThroughABlock) {
  ModelFolder model = deepseek_v3(128, 96, 1, 2);
  EXPECT_THAT(load_error(model, {}, ErrorCode::unsupported),
              AllOf(HasSubstr("shared_experts.gate_proj.weight: cannot be cut at rows [0, 96)"),
                    HasSubstr("FP8 shares scales in blocks of 128x128")));
}

TEST(LoadLayer, SharedExpertsOfAnotherFormat) {
  // DeepSeek-V4: MXFP4 routed experts beside FP8 shared ones.
  ModelFolder model({{"model_type", "deepseek_v4"},
                     {"hidden_size", 128},
                     {"moe_intermediate_size", 128},
                     {"n_routed_experts", 1},
                     {"n_shared_experts", 1},
                     {"num_experts_per_tok", 1},
                     {"num_hidden_layers", 1}});
  for (const std::string w : {"w1", "w2", "w3"}) {
    model.put("layers.0.ffn.experts.0." + w + ".weight", DType::i8, {128, 64});
    model.put("layers.0.ffn.experts.0." + w + ".scale", DType::f8_e8m0, {128, 4});
    model.put("layers.0.ffn.shared_experts." + w + ".weight", DType::f8_e4m3, {128, 128});
    model.put("layers.0.ffn.shared_experts." + w + ".scale", DType::f8_e8m0, {1, 1});
  }
  const LoadedLayer layer = load_layer(model.write(), 0);
  EXPECT_EQ(layer.routed.precision, Precision::mxfp4);
  EXPECT_EQ(layer.shared.value().precision, Precision::fp8);
  EXPECT_THAT(conversion_error(model, Precision::mxfp8_mxfp4),
              AllOf(HasSubstr("shared_experts.w1"),
                    HasSubstr("FP8 weights cannot be loaded as mxfp8_mxfp4")));
  LoadOptions fp8;
  fp8.precision = Precision::fp8;
  const LoadedLayer same = load_layer(model.write(), 0, fp8);
  EXPECT_EQ(same.routed.precision, Precision::fp8);
  EXPECT_EQ(same.shared.value().precision, Precision::fp8);

  // BF16 shared experts beside FP8 routed ones are quantised.
  ModelFolder v3 = deepseek_v3(128, 128, 1, 1);
  for (const std::string p : {"gate_proj", "up_proj", "down_proj"})
    v3.put("model.layers.0.mlp.shared_experts." + p + ".weight", DType::bf16, {128, 128});
  EXPECT_EQ(load_layer(v3.write(), 0).shared.value().precision, Precision::fp8);
}

}  // namespace
}  // namespace megamoe
