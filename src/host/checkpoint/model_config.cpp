#include "host/checkpoint/model_config.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "host/checkpoint/json_text.hpp"
#include "host/checkpoint/mapped_file.hpp"
#include "host/checkpoint/refuse_file.hpp"
#include "megamoe/error.hpp"
#include "numerics/quantize.hpp"

namespace megamoe {
namespace {

using nlohmann::json;

/// gpt-oss and MiniMax M3; configs that leave it out mean this.
constexpr float kOaiAlpha = 1.702F;
constexpr float kOaiLimit = 7.0F;

/// config.json of a text model, or of one with vision: then the text part is an object of its own,
/// and what it lacks is looked up outside.
class Fields {
 public:
  Fields(const json& config, std::string path) : outer_(config), path_(std::move(path)) {
    const auto text = config.find("text_config");
    inner_ = text != config.end() && text->is_object() ? &*text : &outer_;
  }

  [[noreturn]] void refuse(const std::string& detail) const { refuse_file(path_, detail); }

  /// The field, or null when it is missing or null: configs write null for "not used".
  [[nodiscard]] const json* find(const char* key) const {
    for (const json* level : {inner_, &outer_}) {
      const auto found = level->find(key);
      if (found != level->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  /// The field of the text part only.
  [[nodiscard]] const json* find_inner(const char* key) const {
    const auto found = inner_->find(key);
    return found != inner_->end() && !found->is_null() ? &*found : nullptr;
  }
  [[nodiscard]] const json* find_outer(const char* key) const {
    const auto found = outer_.find(key);
    return found != outer_.end() && !found->is_null() ? &*found : nullptr;
  }

  [[nodiscard]] std::optional<std::string> text(const char* key) const {
    return as_text(key, find(key));
  }
  [[nodiscard]] std::optional<std::string> as_text(const char* key, const json* value) const {
    if (value == nullptr) return {};
    if (!value->is_string())
      refuse(fmt::format("{}: expected a string, found {}", key, megamoe::describe(*value)));
    return value->get<std::string>();
  }

  /// The first of `keys` that is there, an integer in low..high.
  [[nodiscard]] std::optional<int> integer(std::initializer_list<const char*> keys, int low,
                                           int high) const {
    for (const char* key : keys) {
      const json* value = find(key);
      if (value == nullptr) continue;
      const bool fits = value->is_number_integer() &&
                        (value->is_number_unsigned()
                             ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                             : value->get<std::int64_t>() <= high) &&
                        value->get<std::int64_t>() >= low;
      if (!fits) {
        refuse(fmt::format("{}: expected an integer in {}..{}, found {}", key, low, high,
                           megamoe::describe(*value)));
      }
      return value->get<int>();
    }
    return {};
  }
  [[nodiscard]] int required(std::initializer_list<const char*> keys, int low, int high) const {
    if (const auto value = integer(keys, low, high)) return *value;
    std::string all;
    for (const char* key : keys) all += fmt::format("{}{}", all.empty() ? "" : " or ", key);
    refuse(fmt::format("expected a field {}, found none", all));
  }

  /// A positive finite number; 0 means "not used", as null does.
  [[nodiscard]] std::optional<float> positive(const char* key) const {
    const json* value = find(key);
    if (value == nullptr || (value->is_number() && value->get<double>() == 0.0)) return {};
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number > 0) || number > static_cast<double>(std::numeric_limits<float>::max())) {
      refuse(
          fmt::format("{}: expected a positive number, found {}", key, megamoe::describe(*value)));
    }
    return static_cast<float>(number);
  }

 private:
  const json& outer_;
  const json* inner_ = nullptr;
  std::string path_;
};

const FamilyRow* read_family(const Fields& fields, std::string& model_type) {
  std::string seen;
  // A model with vision has a model_type of its own around that of its text part.
  for (const json* value : {fields.find_outer("model_type"), fields.find_inner("model_type")}) {
    const auto type = fields.as_text("model_type", value);
    if (!type) continue;
    if (const FamilyRow* row = find_family(*type)) {
      model_type = *type;
      return row;
    }
    if (seen.empty()) seen = *type;
  }
  if (seen.empty()) {
    fields.refuse(
        fmt::format("expected a field model_type, one of {}, found none", known_model_types()));
  }
  fields.refuse(fmt::format("model_type: expected one of {}, found \"{}\"", known_model_types(),
                            printable(seen)));
}

Activation read_activation(const Fields& fields, ModelFamily family) {
  const std::string act = fields.text("hidden_act").value_or("silu");
  // gpt-oss says "silu" and means its own activation.
  if (family == ModelFamily::gpt_oss || act == "swigluoai") {
    Activation oai = swiglu_oai(fields.positive("swiglu_limit").value_or(kOaiLimit));
    oai.alpha = fields.positive("swiglu_alpha").value_or(kOaiAlpha);
    return oai;
  }
  if (act == "situ") {
    return {
        .kind = ActivationKind::situ,
        .beta = fields.positive("activation_situ_beta").value_or(1.0F),
        .linear_beta = fields.positive("activation_situ_linear_beta").value_or(Activation::kNone)};
  }
  if (act == "silu" || act == "swish") {
    return {.kind = ActivationKind::swiglu,
            .clamp = fields.positive("swiglu_limit").value_or(Activation::kNone)};
  }
  fields.refuse(
      fmt::format("hidden_act: expected silu, swigluoai or situ, found \"{}\"", printable(act)));
}

void read_quantisation(const Fields& fields, ModelConfig& config) {
  const json* section = fields.find("quantization_config");
  if (section != nullptr && !section->is_object()) {
    fields.refuse(fmt::format("quantization_config: expected an object, found {}",
                              megamoe::describe(*section)));
  }
  const auto word = [&](const char* key) -> std::string {
    if (section == nullptr) return {};
    const auto found = section->find(key);
    return found != section->end() && found->is_string() ? found->get<std::string>() : "";
  };
  const json read_blocks = json::array({kScaleGroup, kScaleGroup});
  const json block = section == nullptr ? json() : section->value("weight_block_size", json());
  if (!block.is_null() && block != read_blocks) config.other_block_size = printable(block.dump());
  const std::string method = word("quant_method");
  const std::string format = word("format");
  const std::string expert_dtype = fields.text("expert_dtype").value_or(word("expert_dtype"));
  std::string text = method;
  if (!format.empty()) text += " " + format;
  if (!expert_dtype.empty()) text += " experts " + expert_dtype;

  if (expert_dtype == "fp4" || method == "mxfp4" || format == "mxfp4-pack-quantized") {
    config.quantisation = Quantisation::mxfp4;
  } else if (section == nullptr) {
    config.quantisation = Quantisation::none;
  } else {
    if (!block.is_null()) text += " weight_block_size " + printable(block.dump());
    const bool fp8 = method == "fp8" && block == read_blocks;
    config.quantisation = fp8 ? Quantisation::fp8_block_128 : Quantisation::other;
  }
  config.quantisation_text = text.empty() ? "none" : printable(text);
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& path) {
  const json root =
      parse_json(text, {.bytes = 16'000'000, .depth = 32}, fmt::format("file {}", path));
  if (!root.is_object()) {
    throw Error(ErrorCode::invalid_file,
                fmt::format("file {}: expected an object, found {}", path, describe(root)));
  }
  const Fields fields(root, path);
  ModelConfig config;
  config.path = path;
  config.family = read_family(fields, config.model_type);
  const ModelFamily family = config.family->family;
  config.num_layers = fields.required({"num_hidden_layers"}, 1, 100'000);
  config.hidden = family == ModelFamily::kimi_k3
                      ? fields.required({"routed_expert_hidden_size"}, 1, kMaxHidden)
                      : fields.required({"hidden_size"}, 1, kMaxHidden);
  config.intermediate = fields.required({config.family->intermediate_key}, 1, kMaxIntermediate);
  config.experts = fields.required({"n_routed_experts", "num_experts", "num_local_experts"}, 1,
                                   kMaxRanks * kMaxExpertsPerRank);
  config.top_k = fields.required(
      {"num_experts_per_tok", "num_experts_per_token", "experts_per_token"}, 1, kMaxTopK);
  if (config.top_k > config.experts) {
    fields.refuse(
        fmt::format("expected at most as many experts per token as experts, found {} of {}",
                    config.top_k, config.experts));
  }
  if (config.family->shared[0] != nullptr) {
    config.shared_experts =
        fields.integer({"n_shared_experts", "num_shared_experts"}, 0, kMaxSharedExperts)
            .value_or(0);
  }
  config.activation = read_activation(fields, family);
  config.routed_scaling = fields.positive("routed_scaling_factor").value_or(1.0F);
  read_quantisation(fields, config);
  return config;
}

ModelConfig read_model_config(const std::string& path) {
  const MappedFile file(path);
  return parse_model_config(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

const char* name(Quantisation quantisation) {
  switch (quantisation) {
    case Quantisation::none:
      return "none";
    case Quantisation::fp8_block_128:
      return "fp8 with 128x128 blocks";
    case Quantisation::mxfp4:
      return "mxfp4";
    case Quantisation::other:
      return "another format";
  }
  return "unknown";
}

}  // namespace megamoe
