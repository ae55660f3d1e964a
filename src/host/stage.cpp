#include <cstring>

#include <fmt/format.h>

#include "host/layer_state.hpp"
#include "layout/elements.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"

namespace megamoe {
namespace {

template <class Id>
void stage_rows(const LayerState& s, const InputViews& in, const std::uint16_t* hidden_states,
                std::span<const Id> ids, std::span<const float> weights, int num_tokens,
                float routed_scaling) {
  const Problem& p = s.problem;
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
  std::vector<float> row(static_cast<std::size_t>(p.hidden));
  auto* codes = reinterpret_cast<std::uint8_t*>(in.x);
  const std::size_t scale_row = scale_row_bytes(p.precision, p.hidden);
  for (std::size_t t = 0; t < static_cast<std::size_t>(num_tokens); ++t) {
    const std::uint16_t* from = hidden_states + t * p.hidden;
    if (p.precision == Precision::bf16) {
      std::memcpy(in.x + t * p.hidden * 2, from, static_cast<std::size_t>(p.hidden) * 2);
      continue;
    }
    for (int i = 0; i < p.hidden; ++i) row[i] = bf16_to_float(from[i]);
    if (p.precision == Precision::mxfp8_mxfp4) {
      quantize_mx_row(row.data(), p.hidden, codes + t * p.hidden,
                      reinterpret_cast<std::uint8_t*>(in.x_scales) + t * scale_row);
    } else {
      quantize_row(row.data(), p.hidden, codes + t * p.hidden,
                   reinterpret_cast<float*>(in.x_scales + t * scale_row));
    }
  }
  for (std::size_t i = 0; i < slots; ++i) {
    in.topk_idx[i] = ids[i];
    in.topk_weights[i] = weights[i] * routed_scaling;
  }
  const std::size_t all_slots = static_cast<std::size_t>(p.max_tokens_per_rank) * p.top_k;
  std::fill(in.topk_idx + slots, in.topk_idx + all_slots, std::int64_t{-1});
  std::fill(in.topk_weights + slots, in.topk_weights + all_slots, 0.0F);
}

}  // namespace

void Layer::stage(const std::uint16_t* hidden_states, std::span<const std::int64_t> topk_idx,
                  std::span<const float> topk_weights, int num_tokens, float routed_scaling,
                  Stream /*stream*/) {
  stage_rows(*state_, inputs(), hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling);
}

void Layer::stage(const std::uint16_t* hidden_states, std::span<const std::int32_t> topk_idx,
                  std::span<const float> topk_weights, int num_tokens, float routed_scaling,
                  Stream /*stream*/) {
  stage_rows(*state_, inputs(), hidden_states, topk_idx, topk_weights, num_tokens, routed_scaling);
}

}  // namespace megamoe
