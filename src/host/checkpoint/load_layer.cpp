#include <filesystem>
#include <functional>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "host/checkpoint/checkpoint_files.hpp"
#include "host/checkpoint/convert_matrix.hpp"
#include "host/checkpoint/matrix_source.hpp"
#include "host/checkpoint/model_config.hpp"
#include "megamoe/checkpoint.hpp"
#include "numerics/quantize.hpp"

namespace megamoe {
namespace {

[[noreturn]] void refuse_argument(const std::string& detail) {
  throw Error(ErrorCode::invalid_argument, detail);
}

int padded(int size) { return (size + kScaleGroup - 1) / kScaleGroup * kScaleGroup; }

/// A layer found in a checkpoint; its tensors' places are looked up per rank.
struct OpenLayer {
  Checkpoint checkpoint;
  ModelConfig config;
  std::string prefix;
  int layer;
};

void check_options(const ModelConfig& config, const LoadOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks)
    refuse_argument(fmt::format("ranks = {} is outside 1..{}", options.ranks, kMaxRanks));
  if (options.rank < 0 || options.rank >= options.ranks)
    refuse_argument(fmt::format("rank = {} is outside 0..{}", options.rank, options.ranks - 1));
  if (config.experts % options.ranks != 0) {
    const int next = (config.experts + options.ranks - 1) / options.ranks * options.ranks;
    refuse_argument(fmt::format(
        "file {}: experts = {} is not a multiple of ranks = {}; the next multiple is {} "
        "(fill it with redundant experts)",
        config.path, config.experts, options.ranks, next));
  }
  if (options.pad) return;
  for (const auto& [what, size] :
       {std::pair("hidden", config.hidden), std::pair("intermediate", config.intermediate)}) {
    if (size == padded(size)) continue;
    refuse_argument(fmt::format("file {}: {} = {} is not a multiple of 128; pad it to {}",
                                config.path, what, size, padded(size)));
  }
}

OpenLayer open_layer(const std::string& path, int layer, const LoadOptions& options) {
  Checkpoint checkpoint(path);
  ModelConfig config =
      read_model_config((std::filesystem::path(checkpoint.folder()) / "config.json").string());
  check_options(config, options);
  const auto prefix = layer < 0 ? std::nullopt : find_prefix(checkpoint, *config.family, layer);
  if (!prefix) {
    refuse_argument(fmt::format(
        "checkpoint {}: layer = {} has no experts: expected a tensor {}.weight or the like, found "
        "none; the model has {} layers, of which the first may have none",
        path, layer, expert_name(*config.family, "", layer, 0, Matrix::gate), config.num_layers));
  }
  return {.checkpoint = std::move(checkpoint),
          .config = std::move(config),
          .prefix = *prefix,
          .layer = layer};
}

/// Throws unless every matrix has the format of the first.
void require_one_format(const std::vector<ExpertSource>& experts) {
  const MatrixSource& first = experts.front().gate;
  for (const ExpertSource& expert : experts) {
    for (const MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
      if (matrix->format == first.format) continue;
      throw Error(ErrorCode::invalid_file,
                  fmt::format("{}: expected {} as in {}, found {}", matrix->where,
                              name(first.format), first.where, name(matrix->format)));
    }
    if ((expert.gate_bias.values == nullptr) == (expert.down_bias.values == nullptr)) continue;
    throw Error(
        ErrorCode::invalid_file,
        fmt::format("{}: expected biases of both matrices or of none, found one", first.where));
  }
}

/// Throws for FP8 weights whose blocks are not those that their scales are read with: the number of
/// scales alone cannot tell when a matrix is small.
void require_stated_blocks(const ModelConfig& config, const MatrixSource& matrix) {
  if (matrix.format != StoredFormat::fp8_block_128 || config.other_block_size.empty()) return;
  throw Error(ErrorCode::invalid_file,
              fmt::format("file {0}: quantization_config.weight_block_size: expected [{1},{1}] for "
                          "the FP8 weights of {2}, found {3}",
                          config.path, kScaleGroup, matrix.where, config.other_block_size));
}

std::vector<ExpertSource> find_routed(OpenLayer& open, int first, int count) {
  std::vector<ExpertSource> experts;
  for (int e = first; e < first + count; ++e) {
    experts.push_back(find_expert(open.checkpoint, *open.config.family, open.prefix, open.layer, e,
                                  open.config.experts, open.config.hidden,
                                  open.config.intermediate));
  }
  require_one_format(experts);
  require_stated_blocks(open.config, experts.front().gate);
  return experts;
}

std::vector<ExpertSource> find_shared(OpenLayer& open) {
  std::vector<ExpertSource> experts;
  experts.reserve(static_cast<std::size_t>(open.config.shared_experts));
  for (int e = 0; e < open.config.shared_experts; ++e) {
    experts.push_back(find_shared_expert(open.checkpoint, *open.config.family, open.prefix,
                                         open.layer, e, open.config.shared_experts,
                                         open.config.hidden, open.config.intermediate));
  }
  if (experts.empty()) return experts;
  require_one_format(experts);
  require_stated_blocks(open.config, experts.front().gate);
  return experts;
}

/// The precision of shared experts beside routed ones: the same, or fp8 beside mxfp4.
Precision shared_precision(const MatrixSource& shared, Precision routed) {
  if (convertible(shared.format, routed)) return routed;
  if (routed == Precision::mxfp4 && convertible(shared.format, Precision::fp8))
    return Precision::fp8;
  require_convertible(shared.format, routed, shared.where);
  return routed;
}

OwnedExperts allocate(Precision precision, int num_experts, int hidden, int intermediate,
                      bool biases) {
  const ExpertBytes one = expert_bytes(precision, hidden, intermediate);
  const auto count = static_cast<std::size_t>(num_experts);
  OwnedExperts owned{.precision = precision,
                     .num_experts = num_experts,
                     .hidden = hidden,
                     .intermediate = intermediate};
  try {
    owned.w1.resize(count * one.w1);
    owned.w1_scales.resize(count * one.w1_scales);
    owned.w2.resize(count * one.w2);
    owned.w2_scales.resize(count * one.w2_scales);
    if (biases) {
      owned.b1.resize(count * 2 * static_cast<std::size_t>(intermediate));
      owned.b2.resize(count * static_cast<std::size_t>(hidden));
    }
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::system,
                fmt::format("cannot allocate {} bytes for {} experts",
                            count * (one.w1 + one.w1_scales + one.w2 + one.w2_scales), count));
  }
  return owned;
}

/// Places the biases of one expert; padded channels keep 0.
void place_biases(const ExpertSource& source, OwnedExperts& owned, std::size_t expert) {
  if (owned.b1.empty()) return;
  const int intermediate = owned.intermediate;
  float* b1 = owned.b1.data() + expert * 2 * static_cast<std::size_t>(intermediate);
  for (int i = 0; i < source.gate_bias.count; ++i) {
    b1[interleaved_row(i, intermediate)] = source.gate_bias.at(i);
    b1[interleaved_row(intermediate + i, intermediate)] = source.up_bias.at(i);
  }
  float* b2 = owned.b2.data() + expert * static_cast<std::size_t>(owned.hidden);
  for (int h = 0; h < source.down_bias.count; ++h) b2[h] = source.down_bias.at(h);
}

void place_expert(const ExpertSource& source, OwnedExperts& owned, std::size_t expert,
                  ConversionScratch& scratch) {
  const ExpertBytes one = expert_bytes(owned.precision, owned.hidden, owned.intermediate);
  std::byte* w1 = owned.w1.data() + expert * one.w1;
  std::byte* w1_scales = owned.w1_scales.data() + expert * one.w1_scales;
  MatrixTarget target{.precision = owned.precision,
                      .rows = owned.intermediate,
                      .cols = owned.hidden,
                      .codes = w1,
                      .scales = w1_scales,
                      .matrix = Matrix::gate};
  convert_matrix(source.gate, target, scratch);
  target.matrix = Matrix::up;
  // Block scales of up stand after all of gate's; per-row scales are interleaved like the rows.
  if (owned.precision == Precision::fp8) target.scales = w1_scales + one.w1_scales / 2;
  convert_matrix(source.up, target, scratch);
  convert_matrix(source.down,
                 {.precision = owned.precision,
                  .rows = owned.hidden,
                  .cols = owned.intermediate,
                  .codes = owned.w2.data() + expert * one.w2,
                  .scales = owned.w2_scales.data() + expert * one.w2_scales,
                  .matrix = Matrix::down},
                 scratch);
  place_biases(source, owned, expert);
}

OwnedExperts place(const std::vector<ExpertSource>& sources, Precision precision,
                   const ModelConfig& config, const std::function<void()>& expert_done) {
  OwnedExperts owned =
      allocate(precision, static_cast<int>(sources.size()), padded(config.hidden),
               padded(config.intermediate), sources.front().gate_bias.values != nullptr);
  ConversionScratch scratch;
  for (std::size_t e = 0; e < sources.size(); ++e) {
    place_expert(sources[e], owned, e, scratch);
    expert_done();
  }
  return owned;
}

LoadedLayer load_rank(OpenLayer& open, const LoadOptions& options,
                      const std::function<void(double)>& progress) {
  const ModelConfig& config = open.config;
  const int count = config.experts / options.ranks;
  const int first = count * options.rank;
  const std::vector<ExpertSource> routed = find_routed(open, first, count);
  const std::vector<ExpertSource> shared =
      options.shared ? find_shared(open) : std::vector<ExpertSource>();
  const MatrixSource& matrix = routed.front().gate;
  const Precision precision = options.precision.value_or(precision_of(matrix.format));
  require_convertible(matrix.format, precision, matrix.where);
  const Precision beside =
      shared.empty() ? precision : shared_precision(shared.front().gate, precision);

  std::size_t done = 0;
  const auto expert_done = [&] {
    ++done;
    if (progress)
      progress(static_cast<double>(done) / static_cast<double>(routed.size() + shared.size()));
  };
  LoadedLayer loaded{.family = config.family->name,
                     .layer = open.layer,
                     .hidden = config.hidden,
                     .intermediate = config.intermediate,
                     .experts = config.experts,
                     .top_k = config.top_k,
                     .first_expert = first,
                     .activation = config.activation,
                     .routed_scaling = config.routed_scaling,
                     .routed = place(routed, precision, config, expert_done)};
  if (!shared.empty()) loaded.shared = place(shared, beside, config, expert_done);
  return loaded;
}

}  // namespace

ExpertTensors OwnedExperts::view() const {
  const auto pointer = [](const auto& memory) { return memory.empty() ? nullptr : memory.data(); };
  return {.precision = precision,
          .w1_order = W1Order::interleaved_8,
          .num_experts = num_experts,
          .hidden = hidden,
          .intermediate = intermediate,
          .w1 = pointer(w1),
          .w1_scales = pointer(w1_scales),
          .w2 = pointer(w2),
          .w2_scales = pointer(w2_scales),
          .b1 = pointer(b1),
          .b2 = pointer(b2)};
}

LoadedLayer load_layer(const std::string& path, int layer, const LoadOptions& options) {
  OpenLayer open = open_layer(path, layer, options);
  return load_rank(open, options, options.progress);
}

std::vector<LoadedLayer> load_layer_all_ranks(const std::string& path, int layer,
                                              const LoadOptions& options) {
  LoadOptions of_rank = options;
  of_rank.rank = 0;
  OpenLayer open = open_layer(path, layer, of_rank);
  std::vector<LoadedLayer> all;
  for (of_rank.rank = 0; of_rank.rank < options.ranks; ++of_rank.rank) {
    const auto part = [&](double done) {
      if (options.progress) options.progress((of_rank.rank + done) / options.ranks);
    };
    all.push_back(load_rank(open, of_rank, part));
  }
  return all;
}

}  // namespace megamoe
