#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "ref/random_case.hpp"
#include "ref/random_fill.hpp"

namespace megamoe::ref {
namespace {

// What a key is for.
enum InputKey : std::uint64_t { kHiddenStates, kIds, kTopkWeights };

[[noreturn]] void refuse_case(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "random case: " + message);
}

/// The `index`-th of the ids that a token's slots take in turn: a stride without a common factor
/// with `count` spreads neighbours over the experts, and visits each once.
int spread(std::uint64_t index, int count) {
  int stride = std::max(1, static_cast<int>(count * 0.618));
  while (std::gcd(stride, count) != 1) ++stride;
  const auto modulus = static_cast<std::uint64_t>(count);
  return static_cast<int>(index % modulus * static_cast<std::uint64_t>(stride) % modulus);
}

/// `ids` different numbers out of `count`, each drawn by draw(counter) until it is new.
template <class Draw>
void fill_distinct(std::span<std::int64_t> ids, Draw draw) {
  std::uint64_t counter = 0;
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    do {
      *id = draw(counter++);
    } while (std::find(ids.begin(), id, *id) != id);
  }
}

/// Number in 0 .. count-1 whose probability falls as its place^(-1/3), the places being spread: the
/// first of 256 gets 6 times the mean.
int draw_skewed(int count, double uniform) {
  const auto place = static_cast<int>(count * uniform * std::sqrt(uniform));
  return spread(static_cast<std::uint64_t>(std::clamp(place, 0, count - 1)), count);
}

/// Expert `hot` with the probability that gives it 7 times the mean, in any slot.
void route_hot_expert(const Problem& p, std::uint64_t key, std::int64_t hot,
                      std::span<std::int64_t> ids) {
  const auto others = static_cast<std::uint64_t>(p.experts - 1);
  const double chosen = std::min(1.0, 7.0 * p.top_k / p.experts);
  const bool takes = random_uniform(~key, 0) < chosen || ids.size() > others;
  const std::size_t slot = takes ? random_bits(~key, 1) % ids.size() : ids.size();
  // Drawn among the others first: place `hot` and up stand for the next expert.
  std::vector<std::int64_t> drawn(ids.size() - (takes ? 1 : 0));
  fill_distinct(drawn, [&](std::uint64_t counter) {
    const auto place = static_cast<std::int64_t>(random_bits(key, counter) % others);
    return place + (place >= hot ? 1 : 0);
  });
  std::copy_n(drawn.begin(), std::min(slot, drawn.size()), ids.begin());
  if (!takes) return;
  ids[slot] = hot;
  std::copy(drawn.begin() + static_cast<std::ptrdiff_t>(slot), drawn.end(),
            ids.begin() + static_cast<std::ptrdiff_t>(slot) + 1);
}

/// Each slot goes to the rank with the probability that gives it 3 times the mean, as long as it
/// has experts left.
void route_hot_rank(const Problem& p, std::uint64_t key, int hot, std::span<std::int64_t> ids) {
  const std::int64_t local = p.experts_per_rank();
  const std::int64_t others = p.experts - local, first = hot * local;
  const double chosen = std::min(1.0, 3.0 / p.ranks);
  std::int64_t left = local, left_of_others = others;
  std::uint64_t counter = 0;
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    const auto slot = static_cast<std::uint64_t>(id - ids.begin());
    const bool wanted = random_uniform(~key, slot) < chosen;
    const bool here = (wanted && left > 0) || left_of_others == 0;
    --(here ? left : left_of_others);
    do {
      const std::uint64_t bits = random_bits(key, counter++);
      const auto place =
          static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(here ? local : others));
      *id = here ? first + place : place + (place >= first ? local : 0);
    } while (std::find(ids.begin(), id, *id) != id);
  }
}

void route_token(const Problem& p, const Routing& routing, std::uint64_t seed, std::uint64_t token,
                 std::span<std::int64_t> ids) {
  const std::uint64_t key = random_key(seed, kIds, token);
  const auto experts = static_cast<std::uint64_t>(p.experts);
  const auto draw_uniform = [&](std::uint64_t counter) {
    return static_cast<std::int64_t>(random_bits(key, counter) % experts);
  };
  std::fill(ids.begin(), ids.end(), -1);
  switch (routing.kind) {
    case RoutingKind::uniform:
      return fill_distinct(ids, draw_uniform);
    case RoutingKind::balanced:
      for (std::size_t k = 0; k < ids.size(); ++k)
        ids[k] = spread(token * ids.size() + k, p.experts);
      return;
    case RoutingKind::one_rank: {
      const auto local = static_cast<std::uint64_t>(p.experts_per_rank());
      const std::uint64_t first = seed % static_cast<std::uint64_t>(p.ranks) * local;
      return fill_distinct(
          ids.first(std::min<std::size_t>(ids.size(), local)), [&](std::uint64_t counter) {
            return static_cast<std::int64_t>(first + random_bits(key, counter) % local);
          });
    }
    case RoutingKind::one_expert:
      ids[0] = static_cast<std::int64_t>(seed % experts);
      return;
    case RoutingKind::skewed:
      return fill_distinct(ids, [&](std::uint64_t counter) {
        return std::int64_t{draw_skewed(p.experts, random_uniform(key, counter))};
      });
    case RoutingKind::hot_expert:
      return route_hot_expert(p, key, static_cast<std::int64_t>(seed % experts), ids);
    case RoutingKind::hot_rank:
      return route_hot_rank(p, key, static_cast<int>(seed % static_cast<std::uint64_t>(p.ranks)),
                            ids);
    case RoutingKind::masked:
      fill_distinct(ids, draw_uniform);
      for (std::size_t k = 0; k < ids.size(); ++k)
        if (random_uniform(~key, k) < routing.masked) ids[k] = -1;
      return;
    case RoutingKind::none:
      return;
  }
}

void weigh_token(std::uint64_t seed, std::uint64_t token, std::span<float> weights) {
  const std::uint64_t key = random_key(seed, kTopkWeights, token);
  double sum = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) sum += 0.1 + random_uniform(key, k);
  for (std::size_t k = 0; k < weights.size(); ++k)
    weights[k] = static_cast<float>((0.1 + random_uniform(key, k)) / sum);
}

void fill_hidden_states(std::uint64_t seed, std::uint64_t token, std::span<std::uint16_t> values) {
  const std::uint64_t key = random_key(seed, kHiddenStates, token);
  const auto deviation = static_cast<float>(std::exp2(random_uniform(key, 0) * 4 - 2));
  fill_bf16(random_key(key, 1), deviation, std::as_writable_bytes(values));
  for (std::uint64_t i = 0; i < values.size() / 256; ++i) {
    const std::size_t channel = random_bits(random_key(key, 2), i) % values.size();
    values[channel] = float_to_bf16(bf16_to_float(values[channel]) * 16.0F);
  }
}

/// Makes x and x_scales of the hidden states.
void quantise_hidden_states(RankTokens& t) {
  const auto hidden = static_cast<std::size_t>(t.problem.hidden);
  const bool mx = t.problem.precision == Precision::mxfp8_mxfp4;
  if (t.problem.precision == Precision::bf16) {
    const auto bytes = std::as_bytes(std::span(t.hidden_states));
    t.x.assign(bytes.begin(), bytes.end());
    return;
  }
  const std::size_t scale_bytes =
      mx ? hidden / kMxScaleGroup : hidden / kScaleGroup * sizeof(float);
  t.x.resize(t.hidden_states.size());
  t.x_scales.resize(t.hidden_states.size() / hidden * scale_bytes);
  std::vector<float> row(hidden);
  std::vector<float> scales(hidden / kScaleGroup);
  for (std::size_t token = 0; token < t.hidden_states.size() / hidden; ++token) {
    const auto from = t.hidden_states.begin() + static_cast<std::ptrdiff_t>(token * hidden);
    std::transform(from, from + static_cast<std::ptrdiff_t>(hidden), row.begin(), bf16_to_float);
    auto* codes = reinterpret_cast<std::uint8_t*>(t.x.data() + token * hidden);
    std::byte* to = t.x_scales.data() + token * scale_bytes;
    if (mx) {
      quantize_mx_row(row.data(), t.problem.hidden, codes, reinterpret_cast<std::uint8_t*>(to));
    } else {
      quantize_row(row.data(), t.problem.hidden, codes, scales.data());
      std::memcpy(to, scales.data(), scale_bytes);
    }
  }
}

}  // namespace

Routing parse_routing(const std::string& text) {
  for (RoutingKind kind :
       {RoutingKind::uniform, RoutingKind::balanced, RoutingKind::one_rank, RoutingKind::one_expert,
        RoutingKind::skewed, RoutingKind::hot_expert, RoutingKind::hot_rank, RoutingKind::none}) {
    if (text == name(Routing{kind, 0.0})) return {kind, 0.0};
  }
  constexpr std::string_view kPrefix = "masked:";
  if (text.starts_with(kPrefix)) {
    double masked = -1;
    const char* end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data() + kPrefix.size(), end, masked);
    if (error == std::errc{} && parsed == end && masked >= 0 && masked <= 1)
      return {RoutingKind::masked, masked};
  }
  refuse_case(
      fmt::format("routing '{}' is none of uniform, balanced, one-rank, one-expert, skewed, "
                  "hot-expert, hot-rank, masked:P with P in 0..1, none",
                  text));
}

std::string name(const Routing& routing) {
  switch (routing.kind) {
    case RoutingKind::uniform:
      return "uniform";
    case RoutingKind::balanced:
      return "balanced";
    case RoutingKind::one_rank:
      return "one-rank";
    case RoutingKind::one_expert:
      return "one-expert";
    case RoutingKind::skewed:
      return "skewed";
    case RoutingKind::hot_expert:
      return "hot-expert";
    case RoutingKind::hot_rank:
      return "hot-rank";
    case RoutingKind::masked:
      return fmt::format("masked:{}", routing.masked);
    case RoutingKind::none:
      return "none";
  }
  return "unknown";
}

RankInput RankTokens::view() const {
  return {.num_tokens = num_tokens,
          .x = x.data(),
          .x_scales = x_scales.empty() ? nullptr : x_scales.data(),
          .topk_idx = topk_idx.data(),
          .topk_weights = topk_weights.data()};
}

std::vector<std::int32_t> RankTokens::topk_idx_32() const {
  std::vector<std::int32_t> ids;
  ids.reserve(topk_idx.size());
  for (std::int64_t id : topk_idx) ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

RankTokens stage_tokens(const Problem& problem, std::vector<std::uint16_t> hidden_states,
                        std::vector<std::int64_t> topk_idx, std::vector<float> topk_weights) {
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  const std::size_t tokens = hidden_states.size() / hidden;
  const std::size_t slots = tokens * static_cast<std::size_t>(problem.top_k);
  if (hidden_states.size() != tokens * hidden || topk_idx.size() != slots ||
      topk_weights.size() != slots) {
    refuse_case(fmt::format(
        "{} hidden states, {} ids and {} weights are no number of tokens with "
        "hidden = {} and top_k = {}",
        hidden_states.size(), topk_idx.size(), topk_weights.size(), problem.hidden, problem.top_k));
  }
  RankTokens staged{.problem = problem,
                    .num_tokens = static_cast<int>(tokens),
                    .hidden_states = std::move(hidden_states),
                    .x = {},
                    .x_scales = {},
                    .topk_idx = std::move(topk_idx),
                    .topk_weights = std::move(topk_weights)};
  quantise_hidden_states(staged);
  return staged;
}

Input RandomInputs::view() const {
  Input input{problem, {}};
  for (const RankTokens& rank : ranks) input.ranks.push_back(rank.view());
  return input;
}

std::vector<TokenRouting> random_routing(const Problem& problem,
                                         std::span<const int> tokens_per_rank,
                                         const Routing& routing, std::uint64_t seed) {
  if (tokens_per_rank.size() != static_cast<std::size_t>(problem.ranks)) {
    refuse_case(fmt::format("token counts of {} ranks for a problem of {} ranks",
                            tokens_per_rank.size(), problem.ranks));
  }
  const auto top_k = static_cast<std::size_t>(problem.top_k);
  std::vector<TokenRouting> ranks;
  std::uint64_t token = 0;
  for (int count : tokens_per_rank) {
    const auto tokens = static_cast<std::size_t>(std::max(0, count));
    TokenRouting& rank = ranks.emplace_back();
    rank.num_tokens = static_cast<int>(tokens);
    rank.topk_idx.resize(tokens * top_k);
    rank.topk_weights.resize(tokens * top_k);
    for (std::size_t t = 0; t < tokens; ++t, ++token) {
      route_token(problem, routing, seed, token,
                  std::span(rank.topk_idx).subspan(t * top_k, top_k));
      weigh_token(seed, token, std::span(rank.topk_weights).subspan(t * top_k, top_k));
    }
  }
  return ranks;
}

RandomInputs random_inputs(const Problem& problem, std::span<const int> tokens_per_rank,
                           const Routing& routing, std::uint64_t seed) {
  const auto hidden = static_cast<std::size_t>(problem.hidden);
  RandomInputs inputs{problem, {}};
  std::uint64_t token = 0;
  for (TokenRouting& rank : random_routing(problem, tokens_per_rank, routing, seed)) {
    const auto tokens = static_cast<std::size_t>(rank.num_tokens);
    std::vector<std::uint16_t> hidden_states(tokens * hidden);
    for (std::size_t t = 0; t < tokens; ++t, ++token)
      fill_hidden_states(seed, token, std::span(hidden_states).subspan(t * hidden, hidden));
    inputs.ranks.push_back(stage_tokens(problem, std::move(hidden_states), std::move(rank.topk_idx),
                                        std::move(rank.topk_weights)));
  }
  return inputs;
}

}  // namespace megamoe::ref
