#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megamoe {

/// Families of models whose checkpoints name and lay out experts alike.
enum class ModelFamily : std::uint8_t {
  deepseek_v3,
  deepseek_v4,
  kimi_k2,
  kimi_k3,
  qwen3_moe,
  glm,
  minimax,
  mixtral,
  gpt_oss,
};

/// The three matrices of a gated expert, each [out, in]: gate and up [intermediate, hidden], down
/// [hidden, intermediate].
enum class Matrix : std::uint8_t { gate, up, down };

/// How one family names things; "{L}" is the layer, "{E}" the expert.
struct FamilyRow {
  ModelFamily family;
  const char* name;  ///< as tools and messages spell it
  /// "model_type" in config.json; unused places are empty.
  std::array<std::string_view, 3> model_types;
  const char* intermediate_key;  ///< config.json's word for the experts' intermediate size
  const char* layer;             ///< what stands before everything of one layer
  /// A routed expert's gate, up and down, without the suffixes below. gpt-oss holds all experts in
  /// one tensor, gate and up rows interleaved one by one: both names are the same.
  std::array<const char*, 3> expert;
  /// The shared experts' matrices, stacked along the intermediate size; empty: there are none.
  std::array<const char*, 3> shared;
  const char* fp8_scale;     ///< FP8: "X.weight" has its block scales in "X" + this
  const char* mxfp4_weight;  ///< MXFP4: packed codes in "X" + this
  const char* mxfp4_scale;   ///< MXFP4: UE8M0 scales in "X" + this
  bool fused;                ///< all experts in one tensor, expert-major
};

/// All families, one row each.
std::span<const FamilyRow> families();

/// The row of a model_type, or null.
const FamilyRow* find_family(std::string_view model_type);

/// Every model_type of every row, for messages.
std::string known_model_types();

/// The part of a tensor's name before its suffix. `prefix` stands before the row's own words:
/// empty, or "language_model." in checkpoints of models that also see.
std::string expert_name(const FamilyRow& row, std::string_view prefix, int layer, int expert,
                        Matrix matrix);
std::string shared_name(const FamilyRow& row, std::string_view prefix, int layer, Matrix matrix);

}  // namespace megamoe
