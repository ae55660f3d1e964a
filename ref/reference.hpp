#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"

// The reference: what a layer computes, in double, from the same quantised codes that the kernels
// read, with every rounding of the kernels in its place:
//
//   x = code * scale                        exact in double (4-bit times 24-bit significands)
//   g, u = x W1^T + b1                      double
//   h = activation(g, u)                    double, rounded to FP32, then to the format of h with
//                                           the very functions of src/numerics/quantize.hpp
//   o = h W2^T + b2                         double, rounded to FP32, then to BF16
//   y = sum over slots of weight * o        FP32 fused multiply-adds in slot order, shared experts
//                                           last with weight 1; rounded once to BF16
//
// g and u are not rounded before the activation in any precision, mxfp8_mxfp4 included.

namespace megamoe::ref {

/// The tokens that one rank brings, as they lie in its input region. Nothing is owned.
struct RankInput {
  int num_tokens = 0;
  const std::byte* x = nullptr;            ///< [tokens, hidden] e4m3, or BF16
  const std::byte* x_scales = nullptr;     ///< float [tokens, hidden / 128], UE8M0 [tokens,
                                           ///< hidden / 32] for mxfp8_mxfp4, null for bf16
  const std::int64_t* topk_idx = nullptr;  ///< [tokens, top_k]; no expert of the problem: no
                                           ///< contribution
  const float* topk_weights = nullptr;     ///< [tokens, top_k]
};

/// One call of the whole group.
struct Input {
  Problem problem;
  std::vector<RankInput> ranks;  ///< problem.ranks of them
};

/// The weights of the whole group: rank r owns experts r * experts_per_rank onwards, in routed[r].
struct LayerWeights {
  std::vector<ExpertTensors> routed;  ///< problem.ranks of them
  std::vector<ExpertTensors> shared;  ///< the same; empty when the problem has no shared experts
};

/// One token of one rank.
struct Row {
  int rank = 0;
  int token = 0;
};

/// y BF16 [rows, hidden] for the given rows, on `threads` threads. A row's y depends on nothing but
/// its token and the weights: not on the other rows, not on the threads. Needs rows *
/// contributions * hidden * 2 bytes of memory. Throws Error when the input does not fit the
/// problem.
std::vector<std::uint16_t> run_rows(const Input& input, const LayerWeights& weights,
                                    std::span<const Row> rows, int threads = 1);

/// What a Hopper GPU gives for rows, and how far from it a right kernel may be.
struct TensorCoreOutput {
  std::vector<std::uint16_t> y;  ///< BF16 [rows, hidden]
  std::vector<double> doubt;     ///< [rows] L2 of what codes of h can do to y that the last bits of
                                 ///< the activation decide; mostly 0
  std::vector<double> size;      ///< [rows] L2 of y plus the weighted L2 of its contributions: what
                                 ///< the roundings to BF16 are relative to
};

/// As run_rows, with products added as the kernels' tensor core adds them (ref/tensor_core.hpp) and
/// the activation in FP32. Throws Error for other precisions than fp8, too.
TensorCoreOutput run_rows_on_tensor_core(const Input& input, const LayerWeights& weights,
                                         std::span<const Row> rows, int threads = 1);

/// All tokens of all ranks, rank after rank.
std::vector<Row> all_rows(const Input& input);

/// y BF16 [all_rows, hidden].
std::vector<std::uint16_t> run(const Input& input, const LayerWeights& weights, int threads = 1);

/// Rows that each routed expert receives in the call, [experts].
std::vector<std::int64_t> received_rows_per_expert(const Input& input);

}  // namespace megamoe::ref
