#include "ref/reference.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "ref/block.hpp"

namespace megamoe::ref {
namespace {

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

enum class Accumulation : std::uint8_t { exact, tensor_core };

/// All contributions of the rows, and how far each may be from a right kernel's.
struct Contributions {
  std::vector<std::uint16_t> values;  ///< BF16 [rows, contributions, hidden]
  std::vector<double> doubt;          ///< [rows, contributions], L2
};

/// Computes the contributions of one block.
void compute_block(const Input& input, std::span<const Row> rows, const Block& block,
                   Accumulation accumulation, Contributions& contributions) {
  const Problem& p = input.problem;
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const BlockOutput out = accumulation == Accumulation::exact
                              ? exact_output(input, rows, block)
                              : tensor_core_output(input, rows, block);
  for (std::size_t t = 0; t < block.pairs.size(); ++t) {
    const Pair& pair = block.pairs[t];
    const std::size_t at = pair.row_idx * static_cast<std::size_t>(p.contributions()) +
                           static_cast<std::size_t>(pair.slot);
    contributions.doubt[at] = out.doubt[t];
    for (std::size_t c = 0; c < hidden; ++c)
      contributions.values[at * hidden + c] =
          float_to_bf16(static_cast<float>(out.o[t * hidden + c]));
  }
}

Contributions compute(const Input& input, const LayerWeights& weights, std::span<const Row> rows,
                      int threads, Accumulation accumulation) {
  check(input, weights, rows);
  const Problem& p = input.problem;
  const std::size_t count = rows.size() * static_cast<std::size_t>(p.contributions());
  Contributions contributions{
      std::vector<std::uint16_t>(count * static_cast<std::size_t>(p.hidden)),
      std::vector<double>(count)};
  const std::vector<Block> blocks = make_blocks(input, weights, rows);
  std::atomic<std::size_t> next{0};
  std::once_flag failed;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t b = next++; b < blocks.size(); b = next++)
        compute_block(input, rows, blocks[b], accumulation, contributions);
    } catch (...) {
      std::call_once(failed, [&] { failure = std::current_exception(); });
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // The system gives no more: those that are there do the work.
  }
  work();
  helpers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return contributions;
}

/// The slots of one row that contribute.
struct RowSlots {
  const Problem& p;
  const std::int64_t* ids;
  const float* topk_weights;

  RowSlots(const Input& input, const Row& row) : p(input.problem) {
    const RankInput& in = input.ranks[static_cast<std::size_t>(row.rank)];
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(row.token) * p.top_k;
    ids = in.topk_idx + first;
    topk_weights = in.topk_weights + first;
  }
  [[nodiscard]] bool used(int k) const { return k >= p.top_k || is_expert(p, ids[k]); }
  [[nodiscard]] float weight(int k) const { return k < p.top_k ? topk_weights[k] : 1.0F; }
};

/// Sums one row's contributions [contributions, hidden] into y [hidden].
void sum_row(const RowSlots& slots, const std::uint16_t* contributions, std::uint16_t* y) {
  const Problem& p = slots.p;
  for (int c = 0; c < p.hidden; ++c) {
    float sum = 0.0F;
    for (int k = 0; k < p.contributions(); ++k) {
      if (!slots.used(k)) continue;
      sum = std::fma(slots.weight(k),
                     bf16_to_float(contributions[static_cast<std::ptrdiff_t>(k) * p.hidden + c]),
                     sum);
    }
    y[c] = float_to_bf16(sum);
  }
}

/// Of the finite ones: others are compared one by one.
double norm(const std::uint16_t* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = bf16_to_float(values[i]);
    if (std::isfinite(value)) sum += value * value;
  }
  return std::sqrt(sum);
}

std::vector<std::uint16_t> sum_rows(const Input& input, std::span<const Row> rows,
                                    const Contributions& contributions) {
  const auto hidden = static_cast<std::size_t>(input.problem.hidden);
  const auto per_row = static_cast<std::size_t>(input.problem.contributions()) * hidden;
  std::vector<std::uint16_t> y(rows.size() * hidden);
  for (std::size_t i = 0; i < rows.size(); ++i)
    sum_row(RowSlots(input, rows[i]), contributions.values.data() + i * per_row,
            y.data() + i * hidden);
  return y;
}

}  // namespace

std::vector<std::uint16_t> run_rows(const Input& input, const LayerWeights& weights,
                                    std::span<const Row> rows, int threads) {
  return sum_rows(input, rows, compute(input, weights, rows, threads, Accumulation::exact));
}

TensorCoreOutput run_rows_on_tensor_core(const Input& input, const LayerWeights& weights,
                                         std::span<const Row> rows, int threads) {
  const Problem& p = input.problem;
  if (p.precision != Precision::fp8)
    refuse(fmt::format("the tensor core's accumulation is known for fp8, not for {}",
                       name(p.precision)));
  const Contributions contributions =
      compute(input, weights, rows, threads, Accumulation::tensor_core);
  const auto hidden = static_cast<std::size_t>(p.hidden);
  TensorCoreOutput out{sum_rows(input, rows, contributions), {}, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowSlots slots(input, rows[i]);
    double doubt = 0, size = norm(out.y.data() + i * hidden, hidden);
    for (int k = 0; k < p.contributions(); ++k) {
      if (!slots.used(k)) continue;
      const std::size_t at =
          i * static_cast<std::size_t>(p.contributions()) + static_cast<std::size_t>(k);
      const double weight = std::abs(double{slots.weight(k)});
      doubt += weight * contributions.doubt[at];
      size += weight * norm(contributions.values.data() + at * hidden, hidden);
    }
    // A NaN weight or code leaves nothing of the row that could be in doubt.
    out.doubt.push_back(std::isfinite(doubt) ? doubt : 0);
    out.size.push_back(std::isfinite(size) ? size : 0);
  }
  return out;
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
