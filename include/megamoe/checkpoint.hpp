#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megamoe/error.hpp"
#include "megamoe/export.h"
#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"

// Experts of one layer out of a model's checkpoint in safetensors: the Hugging Face layouts of
// DeepSeek-V3 and V4, Kimi K2 and K3, Qwen3-MoE, GLM 4.5 and 5, MiniMax, Mixtral and gpt-oss.

namespace megamoe {

struct LoadOptions {
  /// The format wanted; default: the one that the checkpoint has. What can be had from what:
  ///   FP8 checkpoint    fp8
  ///   BF16 checkpoint   bf16, or fp8 (quantised here)
  ///   MXFP4 checkpoint  mxfp4, mxfp8_mxfp4, or fp8 (exact, or refused)
  std::optional<Precision> precision = {};
  int ranks = 1;
  int rank = 0;
  /// Pads hidden and intermediate to multiples of 128 with zeros; otherwise other sizes are
  /// refused.
  bool pad = true;
  /// Loads the shared experts too, where the layer has some.
  bool shared = true;
  /// Told the part that is done, rising to 1; called on the loading thread.
  std::function<void(double)> progress = {};
};

/// Expert tensors in the kernel's order, with their memory.
struct OwnedExperts {
  Precision precision = Precision::fp8;
  int num_experts = 0;
  int hidden = 0;        ///< padded
  int intermediate = 0;  ///< padded
  std::vector<std::byte> w1 = {}, w1_scales = {}, w2 = {}, w2_scales = {};
  std::vector<float> b1 = {}, b2 = {};  ///< empty: no biases

  /// Pointers into this object, w1_order interleaved_8; valid until it changes or ends.
  [[nodiscard]] MEGAMOE_API ExpertTensors view() const;
};

/// One rank's experts of one layer.
///
/// Padding is exact: a padded channel has zero weights and a zero bias, so it comes out of the
/// first matrix as gate = up = 0, leaves every activation as 0, and adds nothing to a block's
/// maximum or to a sum; a padded channel of y is 0. Scales of padding never widen the range of
/// those around them: FP32 block scales cover whole 128x128 blocks already, so there are none of
/// padding alone, and UE8M0 scales repeat the nearest one of the same row, or of the last row.
struct LoadedLayer {
  std::string family = {};  ///< such as "deepseek-v3"
  int layer = 0;            ///< index in the checkpoint
  int hidden = 0;           ///< the model's own sizes, before padding
  int intermediate = 0;     ///< the same
  int experts = 0;          ///< routed experts of the whole layer
  int top_k = 0;
  int first_expert = 0;  ///< global index of routed's first
  Activation activation = {};
  float routed_scaling = 1.0F;
  OwnedExperts routed = {};
  /// The shared experts, the same on every rank. In routed's precision, or fp8 beside mxfp4 (as
  /// DeepSeek-V4 stores them: both take the same activations).
  std::optional<OwnedExperts> shared = {};
};

/// Loads the experts of `layer` that belong to options.rank. `path` is a folder with config.json
/// and model.safetensors or shards with their index, or one of those files with config.json beside
/// it. Throws Error: invalid_file for a missing, truncated or malformed file, naming file, tensor,
/// expected and found; invalid_argument for a layer without experts, ranks that do not divide the
/// experts, and sizes that need padding when options.pad is false; unsupported for a conversion
/// that cannot be had, naming both formats and the nearest that works.
MEGAMOE_API LoadedLayer load_layer(const std::string& path, int layer,
                                   const LoadOptions& options = {});

/// The same for every rank, in their order; options.rank is not used.
MEGAMOE_API std::vector<LoadedLayer> load_layer_all_ranks(const std::string& path, int layer,
                                                          const LoadOptions& options = {});

}  // namespace megamoe
