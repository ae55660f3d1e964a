#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megamoe/problem.hpp"

namespace megamoe::cli {

/// Shape of one model's MoE layers; tools/models.csv holds the same rows, and a test compares them.
/// Fields that the model's publisher does not state are empty.
struct ModelRow {
  std::string_view name;
  int hidden = 0;
  int intermediate = 0;
  int experts = 0;
  int top_k = 0;
  std::optional<int> shared_experts;
  ActivationKind activation = ActivationKind::swiglu;
  std::optional<float> clamp;
  std::optional<double> routed_scaling;
};

std::span<const ModelRow> models();

/// The row with this name, or with what flash, pro and v3 are short for. Throws
/// Error(invalid_argument) naming near ones.
const ModelRow& find_model(std::string_view name);

/// The activation of a model's row, with the constants that its family uses.
Activation activation_of(const ModelRow& row);

/// All names, for help texts.
std::string model_names();

}  // namespace megamoe::cli
