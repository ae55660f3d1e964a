#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "cli/progress.hpp"
#include "cli/run_case.hpp"
#include "host/checkpoint/checkpoint_files.hpp"
#include "host/checkpoint/model_config.hpp"
#include "megamoe/checkpoint.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

void generate_weights(const RunRequest& request, RunCase& run, Io& io) {
  const Problem& p = run.problem();
  const auto owner = std::make_shared<ref::OwnedLayerWeights>();
  Progress progress(io.err, io.err_is_terminal && !request.json, "weights", p.ranks);
  for (int rank = 0; rank < p.ranks; ++rank) {
    owner->routed.push_back(ref::random_weights(p, rank, request.seed));
    progress.advance();
  }
  if (p.shared_experts > 0) owner->shared = ref::random_shared_weights(p, request.seed);
  run.weights = owner->view();
  run.owner = owner;
}

/// The config.json beside a checkpoint's tensors.
ModelConfig checkpoint_config(const std::string& path) {
  const Checkpoint checkpoint(path);
  return read_model_config((std::filesystem::path(checkpoint.folder()) / "config.json").string());
}

/// The precision that a checkpoint says it has; its tensors decide when they are loaded.
Precision stated_precision(const ModelConfig& config) {
  switch (config.quantisation) {
    case Quantisation::none:
      return Precision::bf16;
    case Quantisation::mxfp4:
      return Precision::mxfp4;
    case Quantisation::fp8_block_128:
    case Quantisation::other:
      break;
  }
  return Precision::fp8;
}

/// The shared experts, checked against what the problem counts.
ExpertTensors shared_view(const LoadedLayer& layer, const Problem& p, const std::string& path) {
  const int found = layer.shared ? layer.shared->num_experts : 0;
  if (found != p.shared_experts) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--shared-experts = {}, layer {} of {} has {}", p.shared_experts,
                            layer.layer, path, found));
  }
  if (layer.shared->precision != p.precision) {
    throw Error(ErrorCode::unsupported,
                fmt::format("pass --precision {0}: the shared experts of layer {1} of {2} are {0}, "
                            "the routed ones {3}, and one call cannot mix them; or run without "
                            "--shared-experts",
                            name(layer.shared->precision), layer.layer, path, name(p.precision)));
  }
  return layer.shared->view();
}

void load_weights(const RunRequest& request, RunCase& run, Io& io) {
  constexpr int kPercent = 100;
  Problem& p = run.shape.problem;
  Progress progress(io.err, io.err_is_terminal && !request.json, "checkpoint %", kPercent);
  int shown = 0;
  LoadOptions options;
  if (request.problem.precision) options.precision = p.precision;
  options.ranks = p.ranks;
  options.shared = p.shared_experts > 0;
  options.progress = [&](double part) {
    const int percent = static_cast<int>(part * kPercent);
    progress.advance(percent - shown);
    shown = percent;
  };
  const auto owner = std::make_shared<std::vector<LoadedLayer>>(
      load_layer_all_ranks(*request.checkpoint, request.layer, options));
  p.precision = owner->front().routed.precision;
  p.activation = owner->front().activation;
  for (const LoadedLayer& layer : *owner) {
    run.weights.routed.push_back(layer.routed.view());
    if (p.shared_experts > 0) {
      run.weights.shared.push_back(shared_view(layer, p, *request.checkpoint));
    }
  }
  run.owner = owner;
}

}  // namespace

Shape resolve_run_shape(const RunRequest& request, const ProblemFlags& flags) {
  if (!request.checkpoint) return resolve_shape(flags, run_defaults());
  const ModelConfig config = checkpoint_config(*request.checkpoint);
  ModelRow row;
  row.name = config.family->name;
  row.hidden = config.hidden;
  row.intermediate = config.intermediate;
  row.experts = config.experts;
  row.top_k = config.top_k;
  row.shared_experts = config.shared_experts;
  ProblemFlags with_precision = flags;
  if (!flags.precision) with_precision.precision = name(stated_precision(config));
  return resolve_shape(with_precision, run_defaults(), row);
}

void fill_weights(const RunRequest& request, RunCase& run, Io& io) {
  if (request.checkpoint) {
    load_weights(request, run, io);
  } else {
    generate_weights(request, run, io);
  }
}

}  // namespace megamoe::cli
