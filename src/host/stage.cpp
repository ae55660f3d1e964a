#include <fmt/format.h>

#include "host/layer_state.hpp"

namespace megamoe {
namespace {

template <class Id>
StageCall checked_call(const Problem& p, const std::uint16_t* hidden_states,
                       std::span<const Id> ids, std::span<const float> weights, int num_tokens,
                       float routed_scaling) {
  if (num_tokens < 0 || num_tokens > p.max_tokens_per_rank) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("num_tokens = {} is outside 0..max_tokens_per_rank = {}", num_tokens,
                            p.max_tokens_per_rank));
  }
  const std::size_t slots = static_cast<std::size_t>(num_tokens) * p.top_k;
  if (ids.size() != slots || weights.size() != slots) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("topk_idx has {} and topk_weights {} values; {} tokens x top_k {} need {}",
                    ids.size(), weights.size(), num_tokens, p.top_k, slots));
  }
  if (hidden_states == nullptr && num_tokens > 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("hidden_states is null with num_tokens = {}", num_tokens));
  }
  return {hidden_states,  ids.data(), sizeof(Id) == sizeof(std::int64_t),
          weights.data(), num_tokens, routed_scaling};
}

}  // namespace

void Layer::stage(const std::uint16_t* hidden_states, std::span<const std::int64_t> topk_idx,
                  std::span<const float> topk_weights, int num_tokens, float routed_scaling,
                  Stream stream) {
  LayerState& s = LayerAccess::state(*this);
  s.backend->stage(
      s, checked_call(s.problem, hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling),
      stream);
}

void Layer::stage(const std::uint16_t* hidden_states, std::span<const std::int32_t> topk_idx,
                  std::span<const float> topk_weights, int num_tokens, float routed_scaling,
                  Stream stream) {
  LayerState& s = LayerAccess::state(*this);
  s.backend->stage(
      s, checked_call(s.problem, hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling),
      stream);
}

}  // namespace megamoe
