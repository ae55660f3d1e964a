#include "cli/models.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/suggest.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr auto kSwiglu = ActivationKind::swiglu;
constexpr auto kSwigluOai = ActivationKind::swiglu_oai;
constexpr auto kSitu = ActivationKind::situ;
constexpr std::nullopt_t kUnstated = std::nullopt;

// Fields in the order of ModelRow: hidden, intermediate, experts, top_k, shared experts,
// activation, clamp, routed scaling.
constexpr std::array<ModelRow, 16> kModels = {{
    {"deepseek-v3", 7168, 2048, 256, 8, 1, kSwiglu, kUnstated, 2.5},
    {"deepseek-v4-flash", 4096, 2048, 256, 6, 1, kSwiglu, 10.0F, 1.5},
    {"deepseek-v4-pro", 7168, 3072, 384, 6, 1, kSwiglu, 10.0F, 2.5},
    {"kimi-k2", 7168, 2048, 384, 8, 1, kSwiglu, kUnstated, 2.827},
    {"kimi-k3-latent", 3584, 3072, 896, 16, 2, kSitu, kUnstated, 1.0},
    {"qwen3-235b-a22b", 4096, 1536, 128, 8, 0, kSwiglu, kUnstated, 1.0},
    {"qwen3-30b-a3b", 2048, 768, 128, 8, 0, kSwiglu, kUnstated, 1.0},
    {"glm-4.5-air", 4096, 1408, 128, 8, 1, kSwiglu, kUnstated, 1.0},
    {"glm-5", 6144, 2048, 256, 8, 1, kSwiglu, kUnstated, 2.5},
    {"glm-5.3-flash", 4096, 2048, 288, 8, 1, kSwiglu, kUnstated, kUnstated},
    {"minimax-m2.5", 3072, 1536, 256, 8, 0, kSwiglu, kUnstated, 1.0},
    {"minimax-m3", 6144, 3072, 128, 4, 1, kSwigluOai, 7.0F, 2.0},
    {"mimo-v2.5-pro", 6144, 2048, 384, 8, kUnstated, kSwiglu, kUnstated, kUnstated},
    {"gpt-oss-120b", 2880, 2880, 128, 4, 0, kSwigluOai, 7.0F, 1.0},
    {"gpt-oss-20b", 2880, 2880, 32, 4, 0, kSwigluOai, 7.0F, 1.0},
    {"mixtral-8x7b", 4096, 14336, 8, 2, 0, kSwiglu, kUnstated, 1.0},
}};

/// Short names of models that people compare kernels on.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kShortNames = {{
    {"flash", "deepseek-v4-flash"},
    {"pro", "deepseek-v4-pro"},
    {"v3", "deepseek-v3"},
}};

std::string_view long_name(std::string_view name) {
  for (const auto& [short_name, full] : kShortNames)
    if (name == short_name) return full;
  return name;
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> result;
  result.reserve(kModels.size());
  for (const ModelRow& row : kModels) result.push_back(row.name);
  return result;
}

}  // namespace

std::span<const ModelRow> models() { return kModels; }

const ModelRow& find_model(std::string_view name) {
  const auto* const it = std::find_if(kModels.begin(), kModels.end(), [&](const ModelRow& row) {
    return row.name == long_name(name);
  });
  if (it == kModels.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("unknown model '{}'{}", name, suggestion(name, names())));
  }
  return *it;
}

Activation activation_of(const ModelRow& row) {
  switch (row.activation) {
    case ActivationKind::swiglu:
      break;
    case ActivationKind::swiglu_oai:
      return swiglu_oai(row.clamp.value_or(7.0F));
    case ActivationKind::situ:
      return {.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F};
  }
  return {.kind = ActivationKind::swiglu, .clamp = row.clamp.value_or(Activation::kNone)};
}

std::string model_names() { return fmt::format("{}", fmt::join(names(), ", ")); }

}  // namespace megamoe::cli
