#pragma once

#include <string>

#include "host/checkpoint/tensor_names.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// How config.json says that the routed experts are stored. The tensors decide what is loaded; this
/// is for reports, and for messages about formats that are not read.
enum class Quantisation : std::uint8_t { none, fp8_block_128, mxfp4, other };

/// What config.json says about a model's MoE layers; sizes are the model's own, not padded.
struct ModelConfig {
  std::string path;  ///< of config.json, for messages
  const FamilyRow* family = nullptr;
  std::string model_type;
  int num_layers = 0;
  /// Channels that experts read and write. Kimi K3: the latent, not the residual stream.
  int hidden = 0;
  int intermediate = 0;
  int experts = 0;
  int top_k = 0;
  int shared_experts = 0;  ///< those that work on the same channels as the routed ones
  Activation activation = {};
  float routed_scaling = 1.0F;  ///< factor on the top-k weights
  Quantisation quantisation = Quantisation::none;
  std::string other_block_size;   ///< the weight_block_size that it states, unless 128 x 128
  std::string quantisation_text;  ///< the config's own words, for messages
};

/// Reads a config.json. Throws Error(invalid_file) naming the file, the field, what was expected
/// and what was found; an unknown model_type or activation is refused by its name.
ModelConfig read_model_config(const std::string& path);

/// The same from text; `path` is only named.
ModelConfig parse_model_config(std::string_view text, const std::string& path);

const char* name(Quantisation quantisation);

}  // namespace megamoe
