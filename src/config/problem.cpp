#include "megamoe/problem.hpp"

#include <fmt/format.h>

#include "config/kernel_config.hpp"

namespace megamoe {
namespace {

std::string outside(const char* field, int value, int low, int high) {
  return fmt::format("{} = {} is outside {}..{}", field, value, low, high);
}

std::string not_multiple_of_128(const char* field, int value) {
  return fmt::format("{} = {} is not a multiple of 128; pad it to {}", field, value,
                     (value + 127) / 128 * 128);
}

/// Of an enum whose last value is `last`.
template <class Enum>
std::string why_unknown(const char* field, Enum value, Enum last) {
  if (value <= last) return {};
  return outside(field, static_cast<int>(value), 0, static_cast<int>(last));
}

std::string why_invalid(const Activation& a) {
  std::string reason = why_unknown("activation", a.kind, ActivationKind::situ);
  if (!reason.empty()) return reason;
  // Negated comparisons also refuse NaN.
  if (!(a.clamp > 0)) return fmt::format("activation clamp = {} must be positive", a.clamp);
  if (!(a.beta > 0)) return fmt::format("activation beta = {} must be positive", a.beta);
  if (!(a.linear_beta > 0))
    return fmt::format("activation linear_beta = {} must be positive", a.linear_beta);
  if (!(a.alpha > -Activation::kNone && a.alpha < Activation::kNone)) {
    return fmt::format("activation alpha = {} must be finite", a.alpha);
  }
  if (!(a.up_bias > -Activation::kNone && a.up_bias < Activation::kNone)) {
    return fmt::format("activation up_bias = {} must be finite", a.up_bias);
  }
  return {};
}

}  // namespace

std::string why_invalid(const Problem& p) {
  if (p.ranks < 1 || p.ranks > kMaxRanks) return outside("ranks", p.ranks, 1, kMaxRanks);
  if (p.experts < 1 || p.experts > kMaxRanks * kMaxExpertsPerRank) {
    return outside("experts", p.experts, 1, kMaxRanks * kMaxExpertsPerRank);
  }
  if (p.experts % p.ranks != 0) {
    return fmt::format(
        "experts = {} is not a multiple of ranks = {}; the next multiple is {} (fill it with "
        "redundant experts)",
        p.experts, p.ranks, (p.experts + p.ranks - 1) / p.ranks * p.ranks);
  }
  if (p.experts_per_rank() > kMaxExpertsPerRank) {
    return outside("experts per rank", p.experts_per_rank(), 1, kMaxExpertsPerRank);
  }
  if (p.top_k < 1 || p.top_k > kMaxTopK) return outside("top_k", p.top_k, 1, kMaxTopK);
  if (p.top_k > p.experts)
    return fmt::format("top_k = {} is more than experts = {}", p.top_k, p.experts);
  if (p.hidden < 1 || p.hidden > kMaxHidden) return outside("hidden", p.hidden, 1, kMaxHidden);
  if (p.hidden % 128 != 0) return not_multiple_of_128("hidden", p.hidden);
  if (p.intermediate < 1 || p.intermediate > kMaxIntermediate) {
    return outside("intermediate", p.intermediate, 1, kMaxIntermediate);
  }
  if (p.intermediate % 128 != 0) return not_multiple_of_128("intermediate", p.intermediate);
  if (p.max_tokens_per_rank < 1 || p.max_tokens_per_rank > kMaxTokensPerRank) {
    return outside("max_tokens_per_rank", p.max_tokens_per_rank, 1, kMaxTokensPerRank);
  }
  if (p.shared_experts < 0 || p.shared_experts > kMaxSharedExperts) {
    return outside("shared_experts", p.shared_experts, 0, kMaxSharedExperts);
  }
  std::string reason = why_unknown("precision", p.precision, Precision::mxfp8_mxfp4);
  if (!reason.empty()) return reason;
  // The smallest blocks run every call that brings few tokens, as far as its rank knows.
  reason = why_too_many_tickets(p, config_for_block_rows(p, kMinBlockRows));
  if (!reason.empty()) return reason;
  return why_invalid(p.activation);
}

const char* name(Precision precision) {
  switch (precision) {
    case Precision::fp8:
      return "fp8";
    case Precision::bf16:
      return "bf16";
    case Precision::mxfp4:
      return "mxfp4";
    case Precision::mxfp8_mxfp4:
      return "mxfp8_mxfp4";
  }
  return "unknown";
}

const char* name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::swiglu:
      return "swiglu";
    case ActivationKind::swiglu_oai:
      return "swiglu-oai";
    case ActivationKind::situ:
      return "situ";
  }
  return "unknown";
}

}  // namespace megamoe
