#include "host/checkpoint/tensor_names.hpp"

#include <algorithm>

namespace megamoe {
namespace {

constexpr std::array<const char*, 3> kGateUpDown{
    "mlp.experts.{E}.gate_proj", "mlp.experts.{E}.up_proj", "mlp.experts.{E}.down_proj"};
constexpr std::array<const char*, 3> kSharedGateUpDown{
    "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"};
/// In every family that has them, w1 is the gate, w3 the up and w2 the down projection.
constexpr std::array<const char*, 3> kSparse132{"block_sparse_moe.experts.{E}.w1",
                                                "block_sparse_moe.experts.{E}.w3",
                                                "block_sparse_moe.experts.{E}.w2"};
constexpr std::array<const char*, 3> kNoShared{};

// Where the rows come from. "Listing": a published listing of the checkpoint's tensors with dtypes
// and shapes. "Loader": the loading code of a public engine for that model.
//   deepseek-v3  the model's own README_WEIGHTS and Transformers' modeling code
//   deepseek-v4  listing of the Flash model (I8 codes [rows, K/2], F8_E8M0 scales [rows, K/32]) and
//                the model's convert.py (low nibble first; w1 gate, w3 up); shared experts are FP8
//                with F8_E8M0 scales per 128x128
//   kimi-k2      as deepseek-v3 (its model_type is a copy of that architecture); INT4 releases are
//                refused by their dtypes
//   kimi-k3      listing (U8 weight_packed [rows, K/2], U8 weight_scale [rows, K/32]); that the low
//                nibble comes first is compressed-tensors' convention, not checked against values.
//                The experts work on a latent of routed_expert_hidden_size; the shared experts do
//                not, so they cannot be part of the same layer
//   qwen3-moe    loaders; the FP8 releases keep weight_scale_inv in BF16
//   glm          loaders for 4.5 (glm4_moe) and 5 (glm_moe_dsa); the 4.5 FP8 release has one scale
//                per channel and is refused
//   minimax      loaders for M2; the shared experts' names are those of M3, from a loader's test;
//                M3's own releases are MXFP8 or NVFP4 and are refused
//   mixtral      Transformers' modeling code
//   gpt-oss      Transformers' modeling code (gate rows even, up rows odd) and several loaders (low
//                nibble first)
constexpr std::array<FamilyRow, 9> kFamilies{{
    {.family = ModelFamily::deepseek_v3,
     .name = "deepseek-v3",
     .model_types = {"deepseek_v3", "deepseek_v32", {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kGateUpDown,
     .shared = kSharedGateUpDown,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::deepseek_v4,
     .name = "deepseek-v4",
     .model_types = {"deepseek_v4", {}, {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "layers.{L}.",
     .expert = {"ffn.experts.{E}.w1", "ffn.experts.{E}.w3", "ffn.experts.{E}.w2"},
     .shared = {"ffn.shared_experts.w1", "ffn.shared_experts.w3", "ffn.shared_experts.w2"},
     .fp8_scale = ".scale",
     .mxfp4_weight = ".weight",
     .mxfp4_scale = ".scale",
     .fused = false},
    {.family = ModelFamily::kimi_k2,
     .name = "kimi-k2",
     .model_types = {"kimi_k2", "kimi_k25", {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kGateUpDown,
     .shared = kSharedGateUpDown,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::kimi_k3,
     .name = "kimi-k3",
     .model_types = {"kimi_k3", "kimi_linear", {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kSparse132,
     .shared = kNoShared,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::qwen3_moe,
     .name = "qwen3-moe",
     .model_types = {"qwen3_moe", {}, {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kGateUpDown,
     .shared = kNoShared,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::glm,
     .name = "glm",
     .model_types = {"glm4_moe", "glm_moe_dsa", {}},
     .intermediate_key = "moe_intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kGateUpDown,
     .shared = kSharedGateUpDown,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::minimax,
     .name = "minimax",
     .model_types = {"minimax_m2", "minimax_m3", "minimax_m3_vl"},
     .intermediate_key = "intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kSparse132,
     .shared = {"block_sparse_moe.shared_experts.gate_proj",
                "block_sparse_moe.shared_experts.up_proj",
                "block_sparse_moe.shared_experts.down_proj"},
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::mixtral,
     .name = "mixtral",
     .model_types = {"mixtral", {}, {}},
     .intermediate_key = "intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = kSparse132,
     .shared = kNoShared,
     .fp8_scale = ".weight_scale_inv",
     .mxfp4_weight = ".weight_packed",
     .mxfp4_scale = ".weight_scale",
     .fused = false},
    {.family = ModelFamily::gpt_oss,
     .name = "gpt-oss",
     .model_types = {"gpt_oss", {}, {}},
     .intermediate_key = "intermediate_size",
     .layer = "model.layers.{L}.",
     .expert = {"mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"},
     .shared = kNoShared,
     .fp8_scale = "",
     .mxfp4_weight = "_blocks",
     .mxfp4_scale = "_scales",
     .fused = true},
}};

/// `text` with the first `mark` replaced by `number`.
std::string put(std::string text, std::string_view mark, int number) {
  if (const auto at = text.find(mark); at != std::string::npos)
    text.replace(at, mark.size(), std::to_string(number));
  return text;
}

std::string layer_name(const FamilyRow& row, std::string_view prefix, int layer) {
  return std::string(prefix) + put(row.layer, "{L}", layer);
}

}  // namespace

std::span<const FamilyRow> families() { return kFamilies; }

const FamilyRow* find_family(std::string_view model_type) {
  if (model_type.empty()) return nullptr;
  for (const FamilyRow& row : kFamilies) {
    const auto& types = row.model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return &row;
  }
  return nullptr;
}

std::string known_model_types() {
  std::string all;
  for (const FamilyRow& row : kFamilies) {
    for (const std::string_view type : row.model_types) {
      if (type.empty()) continue;
      if (!all.empty()) all += ", ";
      all += type;
    }
  }
  return all;
}

std::string expert_name(const FamilyRow& row, std::string_view prefix, int layer, int expert,
                        Matrix matrix) {
  return layer_name(row, prefix, layer) +
         put(row.expert[static_cast<std::size_t>(matrix)], "{E}", expert);
}

std::string shared_name(const FamilyRow& row, std::string_view prefix, int layer, Matrix matrix) {
  return layer_name(row, prefix, layer) + row.shared[static_cast<std::size_t>(matrix)];
}

}  // namespace megamoe
