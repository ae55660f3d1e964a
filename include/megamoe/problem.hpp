#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "megamoe/export.h"

namespace megamoe {

/// Number formats of activations and weights of one layer.
enum class Precision : std::uint8_t {
  fp8,    ///< e4m3 activations, FP32 scale per token and 128 channels; e4m3 weights, FP32 scale per
          ///< 128x128
  bf16,   ///< BF16 activations and weights
  mxfp4,  ///< activations as fp8; weights e2m1 with one UE8M0 scale per 32 along K
  mxfp8_mxfp4,  ///< e4m3 activations with one UE8M0 scale per 32 channels; weights as mxfp4
                ///< (Blackwell)
};

enum class ActivationKind : std::uint8_t { swiglu, swiglu_oai, situ };

// clang-format off
/// The gated activation between the two expert matrices; g is the gate, u the up projection.
///   swiglu      silu(min(g, clamp)) * clamp(u, -clamp, clamp)
///   swiglu_oai  g' * sigmoid(alpha * g') * (u' + up_bias),
///               g' = min(g, clamp), u' = clamp(u, -clamp, clamp)
///   situ        beta * tanh(g / beta) * sigmoid(g) * linear_beta * tanh(u / linear_beta);
///               the last factor is u itself when linear_beta is infinite
// clang-format on
struct Activation {
  static constexpr float kNone = std::numeric_limits<float>::infinity();
  ActivationKind kind = ActivationKind::swiglu;
  float clamp = kNone;
  float alpha = 1.0F;
  float up_bias = 0.0F;
  float beta = 1.0F;
  float linear_beta = kNone;
  bool operator==(const Activation&) const = default;
};

/// gpt-oss: alpha 1.702, up bias 1, clamp 7.
constexpr Activation swiglu_oai(float clamp = 7.0F) {
  return {.kind = ActivationKind::swiglu_oai, .clamp = clamp, .alpha = 1.702F, .up_bias = 1.0F};
}

/// Limits of a Problem; words and fixed tables are sized for them.
inline constexpr int kMaxRanks = 72;
inline constexpr int kMaxExpertsPerRank = 256;
inline constexpr int kMaxTopK = 16;
inline constexpr int kMaxSharedExperts = 4;
inline constexpr int kMaxHidden = 16384;
inline constexpr int kMaxIntermediate = 32768;
inline constexpr int kMaxTokensPerRank = 131072;

/// Everything that sizes and shapes one expert-parallel layer; the same value on every rank.
struct Problem {
  int ranks = 1;
  int experts = 0;              ///< routed experts of the whole group, a multiple of ranks
  int top_k = 0;                ///< slots per token
  int hidden = 0;               ///< channels of x and y, a multiple of 128
  int intermediate = 0;         ///< channels between the two expert matrices, a multiple of 128
  int max_tokens_per_rank = 0;  ///< capacity: the most tokens that one rank may bring to one call
  Precision precision = Precision::fp8;
  Activation activation = {};
  int shared_experts = 0;  ///< experts that every token visits on its own rank, with weight 1

  /// Routed experts that one rank owns.
  [[nodiscard]] constexpr int experts_per_rank() const { return experts / ranks; }
  /// Experts whose tiles one rank computes: its routed ones, then the shared ones.
  [[nodiscard]] constexpr int local_experts() const { return experts_per_rank() + shared_experts; }
  /// Contributions that are summed into one token of y: its slots, then the shared experts.
  [[nodiscard]] constexpr int contributions() const { return top_k + shared_experts; }
  bool operator==(const Problem&) const = default;
};

/// The reason why `problem` cannot be run, naming the offending values, or an empty string.
MEGAMOE_API std::string why_invalid(const Problem& problem);

/// Names as the command line and JSON spell them.
MEGAMOE_API const char* name(Precision precision);
MEGAMOE_API const char* name(ActivationKind kind);

}  // namespace megamoe
