#include "cli/problem_flags.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/arguments.hpp"
#include "cli/numbers.hpp"
#include "cli/suggest.hpp"
#include "config/refuse.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

int padded(int channels) { return (channels + 127) / 128 * 128; }

void note_padding(const char* field, int stated, Shape& shape) {
  if (padded(stated) == stated) return;
  shape.notes.push_back(fmt::format("{} {} of {} is padded to {} (a multiple of 128)", field,
                                    stated, shape.model->name, padded(stated)));
}

void require_all_dimensions(const ProblemFlags& flags) {
  const std::array<std::pair<const char*, bool>, 4> dimensions = {{
      {"--hidden", flags.hidden.has_value()},
      {"--intermediate", flags.intermediate.has_value()},
      {"--experts", flags.experts.has_value()},
      {"--top-k", flags.top_k.has_value()},
  }};
  for (const auto& [flag, given] : dimensions) {
    if (given) continue;
    refuse(fmt::format(
        "{} is missing; give --model NAME, or all of --hidden, --intermediate, --experts and "
        "--top-k",
        flag));
  }
}

/// Dimensions of shape.model, if there is one, with the flags' values in their place.
void fill_dimensions(const ProblemFlags& flags, Shape& shape) {
  if (!shape.model) require_all_dimensions(flags);
  const ModelRow row = shape.model.value_or(ModelRow{});
  Problem& p = shape.problem;
  shape.stated_hidden = integer_or(flags.hidden, "--hidden", 1, kMaxHidden, row.hidden);
  shape.stated_intermediate =
      integer_or(flags.intermediate, "--intermediate", 1, kMaxIntermediate, row.intermediate);
  p.experts =
      integer_or(flags.experts, "--experts", 1, kMaxRanks * kMaxExpertsPerRank, row.experts);
  p.top_k = integer_or(flags.top_k, "--top-k", 1, kMaxTopK, row.top_k);
  p.shared_experts = integer_or(flags.shared_experts, "--shared-experts", 0, kMaxSharedExperts, 0);
  if (shape.model) p.activation = activation_of(row);
  if (flags.activation) {
    const Activation wanted = parse_activation(*flags.activation);
    if (wanted.kind != p.activation.kind) p.activation = wanted;
  }
  p.hidden = flags.hidden ? shape.stated_hidden : padded(shape.stated_hidden);
  p.intermediate =
      flags.intermediate ? shape.stated_intermediate : padded(shape.stated_intermediate);
  if (!flags.hidden) note_padding("hidden", shape.stated_hidden, shape);
  if (!flags.intermediate) note_padding("intermediate", shape.stated_intermediate, shape);
  const int shared = row.shared_experts.value_or(0);
  if (shared > 0 && !flags.shared_experts) {
    shape.notes.push_back(
        fmt::format("{} has {} shared expert{}, not counted here; --shared-experts {} fuses {}",
                    row.name, shared, shared == 1 ? "" : "s", shared, shared == 1 ? "it" : "them"));
  }
}

void fill_tokens(const ProblemFlags& flags, const ProblemDefaults& defaults, Shape& shape) {
  for (const std::int64_t count : parse_integer_list(
           "--tokens", flags.tokens.value_or(defaults.tokens), 0, kMaxTokensPerRank)) {
    shape.tokens.push_back(static_cast<int>(count));
  }
  const int most = *std::max_element(shape.tokens.begin(), shape.tokens.end());
  shape.problem.max_tokens_per_rank =
      integer_or(flags.capacity, "--capacity", 1, kMaxTokensPerRank, std::max(1, most));
  if (most > shape.problem.max_tokens_per_rank) {
    refuse(fmt::format("--tokens = {} is more than --capacity = {}", most,
                       shape.problem.max_tokens_per_rank));
  }
}

}  // namespace

void add_problem_flags(CLI::App& app, ProblemFlags& flags, const ProblemDefaults& defaults) {
  const std::string group = "Problem";
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* value,
                       const std::string& help) {
    add_text(app, flag, text, value, help)->group(group);
  };
  add("--model", flags.model, "NAME", "Shape of a known model: " + model_names());
  add("--hidden", flags.hidden, "H", "Channels of a token, a multiple of 128");
  add("--intermediate", flags.intermediate, "I", "Channels of an expert, a multiple of 128");
  add("--experts", flags.experts, "E", "Routed experts of the group, a multiple of the ranks");
  add("--top-k", flags.top_k, "K", fmt::format("Experts of a token, 1..{}", kMaxTopK));
  add("--shared-experts", flags.shared_experts, "S",
      "Shared experts fused into the layer (default 0)");
  add("--precision", flags.precision, "P", "fp8, bf16 or mxfp4 (default fp8)");
  add("--ranks", flags.ranks, "N",
      fmt::format("Ranks of the group, 1..{} (default {})", kMaxRanks, defaults.ranks));
  add("--tokens", flags.tokens, "M[,M...]", defaults.tokens_help);
  add("--capacity", flags.capacity, "M",
      "Most tokens that a rank may bring (default: the most listed)");
}

Precision parse_precision(const std::string& text) {
  constexpr std::array<std::string_view, 4> kNames = {"fp8", "bf16", "mxfp4", "mxfp8_mxfp4"};
  constexpr std::array<Precision, 4> kValues = {Precision::fp8, Precision::bf16, Precision::mxfp4,
                                                Precision::mxfp8_mxfp4};
  const auto* const it = std::find(kNames.begin(), kNames.end(), text);
  if (it == kNames.end()) {
    refuse(fmt::format("unknown precision '{}'{}", text, suggestion(text, kNames)));
  }
  return kValues[static_cast<std::size_t>(it - kNames.begin())];
}

Activation parse_activation(const std::string& text) {
  constexpr std::array<ActivationKind, 3> kKinds = {
      ActivationKind::swiglu, ActivationKind::swiglu_oai, ActivationKind::situ};
  std::vector<std::string_view> names;
  for (const ActivationKind kind : kKinds) {
    if (text == name(kind)) {
      ModelRow row;
      row.activation = kind;
      return activation_of(row);
    }
    names.emplace_back(name(kind));
  }
  refuse(fmt::format("unknown activation '{}'{}", text, suggestion(text, names)));
}

Shape resolve_shape(const ProblemFlags& flags, const ProblemDefaults& defaults,
                    const std::optional<ModelRow>& model) {
  Shape shape;
  shape.model = model;
  if (!model && flags.model) shape.model = find_model(*flags.model);
  shape.problem.ranks = integer_or(flags.ranks, "--ranks", 1, kMaxRanks, defaults.ranks);
  shape.problem.precision = parse_precision(flags.precision.value_or("fp8"));
  fill_dimensions(flags, shape);
  fill_tokens(flags, defaults, shape);
  const std::string reason = why_invalid(shape.problem);
  if (!reason.empty()) refuse(reason);
  return shape;
}

std::vector<int> tokens_per_rank(const Shape& shape) {
  const auto ranks = static_cast<std::size_t>(shape.problem.ranks);
  if (shape.tokens.size() == 1) return std::vector<int>(ranks, shape.tokens[0]);
  if (shape.tokens.size() != ranks) {
    refuse(fmt::format("--tokens lists {} counts for --ranks = {}; give one, or one per rank",
                       shape.tokens.size(), ranks));
  }
  return shape.tokens;
}

}  // namespace megamoe::cli
