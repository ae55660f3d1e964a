#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"
#include "ref/reference.hpp"

// Seeded inputs and weights of a realistic scale, for tests and tools:
//
//   const auto tokens = ref::random_inputs(problem, counts, {ref::RoutingKind::uniform}, seed);
//   const auto weights = ref::random_layer(problem, seed);
//   const auto y = ref::run(tokens.view(), weights.view(), threads);
//
// A weight depends on the seed, its expert's global number and its logical place, not on the number
// of ranks nor on the order of w1. A token depends on the seed and on its number in the group
// (counted over the ranks in order), its routing on the kind too.

namespace megamoe::ref {

/// The tensors behind an ExpertTensors.
struct OwnedExpertTensors {
  ExpertTensors shape;  ///< everything but the pointers
  std::vector<std::byte> w1, w1_scales, w2, w2_scales;
  std::vector<float> b1, b2;  ///< empty: none

  [[nodiscard]] ExpertTensors view() const;
};

struct WeightOptions {
  W1Order w1_order = W1Order::interleaved_8;
  bool biases = false;
};

/// Expert tensors of the problem's shape, zeroed.
OwnedExpertTensors allocate_tensors(const Problem& problem, int num_experts,
                                    const WeightOptions& options = {});

/// The routed experts of `rank`. Products have a deviation of about 1 for x of deviation 1.
OwnedExpertTensors random_weights(const Problem& problem, int rank, std::uint64_t seed,
                                  const WeightOptions& options = {});

/// The shared experts: the same on every rank.
OwnedExpertTensors random_shared_weights(const Problem& problem, std::uint64_t seed,
                                         const WeightOptions& options = {});

/// All ranks' weights.
struct OwnedLayerWeights {
  std::vector<OwnedExpertTensors> routed;  ///< [ranks]
  OwnedExpertTensors shared;               ///< num_experts == 0: none

  [[nodiscard]] LayerWeights view() const;
};
OwnedLayerWeights random_layer(const Problem& problem, std::uint64_t seed,
                               const WeightOptions& options = {});

enum class RoutingKind : std::uint8_t {
  uniform,     ///< different experts, all equally likely
  balanced,    ///< every expert gets the same number of rows, up to one
  one_rank,    ///< all to the experts of rank seed % ranks; slots beyond its experts are -1
  one_expert,  ///< slot 0 to expert seed % experts, the others -1
  skewed,      ///< different experts, some of them popular: one of 256 gets 6 times the mean
  hot_expert,  ///< as uniform, but expert seed % experts gets 7 times the mean, or every token
  hot_rank,    ///< as uniform, but rank seed % ranks gets 3 times the mean, or all it can
  masked,      ///< as uniform, each slot -1 with probability `masked`
  none,        ///< all -1
};

struct Routing {
  RoutingKind kind = RoutingKind::uniform;
  double masked = 0.0;  ///< for RoutingKind::masked, 0..1
};

/// uniform, balanced, one-rank, one-expert, skewed, hot-expert, hot-rank, masked:P or none. Throws
/// Error for other text.
Routing parse_routing(const std::string& text);
std::string name(const Routing& routing);

/// One rank's tokens, with what they were made from.
struct RankTokens {
  Problem problem;
  int num_tokens = 0;
  std::vector<std::uint16_t> hidden_states;  ///< BF16 [tokens, hidden]
  std::vector<std::byte> x, x_scales;        ///< as staged: see RankInput
  std::vector<std::int64_t> topk_idx;        ///< [tokens, top_k]
  std::vector<float> topk_weights;           ///< [tokens, top_k]

  [[nodiscard]] RankInput view() const;
  /// The ids as routers with 32-bit ids give them.
  [[nodiscard]] std::vector<std::int32_t> topk_idx_32() const;
};

/// Quantises hidden states as staging does. Throws Error when the sizes do not fit together.
RankTokens stage_tokens(const Problem& problem, std::vector<std::uint16_t> hidden_states,
                        std::vector<std::int64_t> topk_idx, std::vector<float> topk_weights);

struct RandomInputs {
  Problem problem;
  std::vector<RankTokens> ranks;

  [[nodiscard]] Input view() const;
};

/// Where one rank's tokens go.
struct TokenRouting {
  int num_tokens = 0;
  std::vector<std::int64_t> topk_idx;  ///< [tokens, top_k]
  std::vector<float> topk_weights;     ///< [tokens, top_k], positive, adding up to 1 over a token's
                                       ///< slots
};

/// The routing of random_inputs without its hidden states, [ranks].
std::vector<TokenRouting> random_routing(const Problem& problem,
                                         std::span<const int> tokens_per_rank,
                                         const Routing& routing, std::uint64_t seed);

/// tokens_per_rank[r] tokens on rank r: BF16 hidden states of deviation 1/4 .. 4 with a few
/// channels that stand out, and positive top-k weights that add up to 1 over a token's slots.
RandomInputs random_inputs(const Problem& problem, std::span<const int> tokens_per_rank,
                           const Routing& routing, std::uint64_t seed);

}  // namespace megamoe::ref
