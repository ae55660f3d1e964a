#include "ref/reference.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "ref/decode.hpp"
#include "ref/dot.hpp"

namespace megamoe::ref {
namespace {

using Values = std::vector<double>;

/// One contribution to compute: row `row_idx` of the caller's list, slot `slot` (top_k and up:
/// shared experts).
struct Pair {
  std::size_t row_idx;
  int slot;
};

/// Rows of one expert that are computed together, so that its weights are decoded once for them.
struct Block {
  const ExpertTensors* tensors;
  int expert;  ///< in `tensors`
  std::vector<Pair> pairs;
};
constexpr std::size_t kBlockPairs = 64;

bool is_expert(const Problem& p, std::int64_t id) { return id >= 0 && id < p.experts; }

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "reference: " + message);
}

void check_tensors(const Problem& p, const ExpertTensors& t, int experts, const char* what,
                   std::size_t rank) {
  if (t.precision != p.precision || t.num_experts != experts || t.hidden != p.hidden ||
      t.intermediate != p.intermediate) {
    refuse(
        fmt::format("{} weights of rank {} are {} x {} x {} {}, the problem needs {} x {} x {} {}",
                    what, rank, t.num_experts, t.hidden, t.intermediate, name(t.precision), experts,
                    p.hidden, p.intermediate, name(p.precision)));
  }
  const bool scaled = p.precision != Precision::bf16;
  if (t.w1 == nullptr || t.w2 == nullptr ||
      (scaled && (t.w1_scales == nullptr || t.w2_scales == nullptr)))
    refuse(fmt::format("{} weights of rank {} have a null pointer", what, rank));
}

void check(const Input& input, const LayerWeights& weights, std::span<const Row> rows) {
  const Problem& p = input.problem;
  if (const std::string reason = why_invalid(p); !reason.empty()) refuse(reason);
  const auto ranks = static_cast<std::size_t>(p.ranks);
  const std::size_t shared = p.shared_experts > 0 ? ranks : 0;
  if (input.ranks.size() != ranks || weights.routed.size() != ranks ||
      weights.shared.size() != shared) {
    refuse(
        fmt::format("inputs of {} ranks, routed weights of {} and shared weights of {} for a "
                    "problem of {} ranks and {} shared experts",
                    input.ranks.size(), weights.routed.size(), weights.shared.size(), p.ranks,
                    p.shared_experts));
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    check_tensors(p, weights.routed[r], p.experts_per_rank(), "routed", r);
    if (shared > 0) check_tensors(p, weights.shared[r], p.shared_experts, "shared", r);
    const RankInput& in = input.ranks[r];
    const bool scaled = p.precision != Precision::bf16;
    if (in.num_tokens > 0 && (in.x == nullptr || in.topk_idx == nullptr ||
                              in.topk_weights == nullptr || (scaled && in.x_scales == nullptr)))
      refuse(fmt::format("the input of rank {} has a null pointer", r));
  }
  for (const Row& row : rows) {
    if (row.rank < 0 || row.rank >= p.ranks || row.token < 0 ||
        row.token >= input.ranks[static_cast<std::size_t>(row.rank)].num_tokens)
      refuse(fmt::format("there is no token {} of rank {}", row.token, row.rank));
  }
}

/// The pairs of `rows`, by expert, in blocks of at most kBlockPairs.
std::vector<Block> make_blocks(const Input& input, const LayerWeights& weights,
                               std::span<const Row> rows) {
  const Problem& p = input.problem;
  const auto routed = static_cast<std::size_t>(p.experts);
  const auto shared_per_rank = static_cast<std::size_t>(p.shared_experts);
  std::vector<std::vector<Pair>> pairs(routed +
                                       static_cast<std::size_t>(p.ranks) * shared_per_rank);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto rank = static_cast<std::size_t>(rows[i].rank);
    const std::int64_t* ids =
        input.ranks[rank].topk_idx + static_cast<std::ptrdiff_t>(rows[i].token) * p.top_k;
    for (int k = 0; k < p.top_k; ++k)
      if (is_expert(p, ids[k])) pairs[static_cast<std::size_t>(ids[k])].push_back({i, k});
    for (std::size_t j = 0; j < shared_per_rank; ++j)
      pairs[routed + rank * shared_per_rank + j].push_back({i, p.top_k + static_cast<int>(j)});
  }
  std::vector<Block> blocks;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    const auto per_rank =
        e < routed ? static_cast<std::size_t>(p.experts_per_rank()) : shared_per_rank;
    const std::size_t index = e < routed ? e : e - routed;
    const auto& tensors = e < routed ? weights.routed : weights.shared;
    for (std::size_t at = 0; at < pairs[e].size(); at += kBlockPairs) {
      const auto begin = pairs[e].begin() + static_cast<std::ptrdiff_t>(at);
      const auto count = std::min(kBlockPairs, pairs[e].size() - at);
      blocks.push_back({&tensors[index / per_rank],
                        static_cast<int>(index % per_rank),
                        {begin, begin + static_cast<std::ptrdiff_t>(count)}});
    }
  }
  return blocks;
}

/// x W^T + bias: x [tokens, cols], W [rows, cols] by `decode_row(row, values)`; rows is a multiple
/// of 4.
template <class DecodeRow, class Bias>
Values linear(const Values& x, std::size_t tokens, int rows, int cols, DecodeRow decode_row,
              Bias bias) {
  const auto out_stride = static_cast<std::size_t>(rows);
  Values out(tokens * out_stride);
  Values w(static_cast<std::size_t>(kDotRows) * static_cast<std::size_t>(cols));
  for (int row = 0; row < rows; row += kDotRows) {
    for (int r = 0; r < kDotRows; ++r)
      decode_row(row + r, w.data() + static_cast<std::ptrdiff_t>(r) * cols);
    dot_rows(x.data(), static_cast<int>(tokens), w.data(), cols, out.data() + row, out_stride);
  }
  for (std::size_t t = 0; t < tokens; ++t)
    for (int row = 0; row < rows; ++row)
      out[t * out_stride + static_cast<std::size_t>(row)] += bias(row);
  return out;
}

/// Activates g, u [tokens, 2 * intermediate] and rounds h as it enters the second matrix.
Values activated(const Problem& p, const Values& gate_up, std::size_t tokens) {
  const auto width = static_cast<std::size_t>(p.intermediate);
  Values h(tokens * width);
  std::vector<float> row(width);
  for (std::size_t t = 0; t < tokens; ++t) {
    const double* gate = gate_up.data() + t * 2 * width;
    for (std::size_t i = 0; i < width; ++i)
      row[i] = static_cast<float>(
          activate<StandardMath<double>>(p.activation, gate[i], gate[width + i]));
    requantise_h(p.precision, row.data(), p.intermediate, h.data() + t * width);
  }
  return h;
}

/// Computes the contributions of one block: BF16 [rows, contributions, hidden].
void compute_block(const Input& input, std::span<const Row> rows, const Block& block,
                   std::vector<std::uint16_t>& contributions) {
  const Problem& p = input.problem;
  const ExpertTensors& tensors = *block.tensors;
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const std::size_t tokens = block.pairs.size();
  Values x(tokens * hidden);
  for (std::size_t t = 0; t < tokens; ++t) {
    const Row& row = rows[block.pairs[t].row_idx];
    decode_x(p, input.ranks[static_cast<std::size_t>(row.rank)], row.token, x.data() + t * hidden);
  }
  const Values gate_up = linear(
      x, tokens, 2 * p.intermediate, p.hidden,
      [&](int row, double* values) { decode_w1(tensors, block.expert, row, values); },
      [&](int row) { return bias_1(tensors, block.expert, row); });
  const Values h = activated(p, gate_up, tokens);
  const Values o = linear(
      h, tokens, p.hidden, p.intermediate,
      [&](int row, double* values) { decode_w2(tensors, block.expert, row, values); },
      [&](int row) { return bias_2(tensors, block.expert, row); });
  for (std::size_t t = 0; t < tokens; ++t) {
    const Pair& pair = block.pairs[t];
    const std::size_t at = (pair.row_idx * static_cast<std::size_t>(p.contributions()) +
                            static_cast<std::size_t>(pair.slot)) *
                           hidden;
    for (std::size_t c = 0; c < hidden; ++c)
      contributions[at + c] = float_to_bf16(static_cast<float>(o[t * hidden + c]));
  }
}

/// Sums one row's contributions [contributions, hidden] into y [hidden].
void sum_row(const Problem& p, const std::int64_t* ids, const float* topk_weights,
             const std::uint16_t* contributions, std::uint16_t* y) {
  for (int c = 0; c < p.hidden; ++c) {
    float sum = 0.0F;
    for (int k = 0; k < p.contributions(); ++k) {
      if (k < p.top_k && !is_expert(p, ids[k])) continue;
      const float weight = k < p.top_k ? topk_weights[k] : 1.0F;
      sum = std::fma(
          weight, bf16_to_float(contributions[static_cast<std::ptrdiff_t>(k) * p.hidden + c]), sum);
    }
    y[c] = float_to_bf16(sum);
  }
}

}  // namespace

std::vector<std::uint16_t> run_rows(const Input& input, const LayerWeights& weights,
                                    std::span<const Row> rows, int threads) {
  check(input, weights, rows);
  const Problem& p = input.problem;
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const auto per_row = static_cast<std::size_t>(p.contributions()) * hidden;
  std::vector<std::uint16_t> contributions(rows.size() * per_row);
  const std::vector<Block> blocks = make_blocks(input, weights, rows);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t b = next++; b < blocks.size(); b = next++)
      compute_block(input, rows, blocks[b], contributions);
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  std::vector<std::uint16_t> y(rows.size() * hidden);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RankInput& in = input.ranks[static_cast<std::size_t>(rows[i].rank)];
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(rows[i].token) * p.top_k;
    sum_row(p, in.topk_idx + first, in.topk_weights + first, contributions.data() + i * per_row,
            y.data() + i * hidden);
  }
  return y;
}

std::vector<Row> all_rows(const Input& input) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < input.ranks.size(); ++r)
    for (int t = 0; t < input.ranks[r].num_tokens; ++t) rows.push_back({static_cast<int>(r), t});
  return rows;
}

std::vector<std::uint16_t> run(const Input& input, const LayerWeights& weights, int threads) {
  return run_rows(input, weights, all_rows(input), threads);
}

std::vector<std::int64_t> received_rows_per_expert(const Input& input) {
  const Problem& p = input.problem;
  std::vector<std::int64_t> received(static_cast<std::size_t>(p.experts));
  for (const RankInput& in : input.ranks) {
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(in.num_tokens) * p.top_k; ++i)
      if (is_expert(p, in.topk_idx[i])) ++received[static_cast<std::size_t>(in.topk_idx[i])];
  }
  return received;
}

}  // namespace megamoe::ref
