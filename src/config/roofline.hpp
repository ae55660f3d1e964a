#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "megamoe/problem.hpp"

namespace megamoe {

/// Rates of one GPU: bytes per second of its memory and of NVLink in one direction, and dense
/// tensor-core operations per second.
struct GpuRates {
  double hbm = 0;
  double nvlink = 0;
  double fp8 = 0;
  double bf16 = 0;
};

/// A GPU type. `peak` is the data sheet, `practical` what a good kernel reaches.
struct Gpu {
  std::string_view name;
  GpuRates peak;
  GpuRates practical;
  bool practical_is_assumed = false;  ///< scaled from another GPU, not measured
  int nvlink_ranks = 8;               ///< most GPUs that share one NVLink domain
  bool blackwell = false;             ///< runs mxfp8_mxfp4 and bf16; the others fp8, mxfp4 and bf16
};

/// H20, H100, H200, H800, B200.
std::span<const Gpu> gpus();
/// By name, exactly as gpus() spells it, or null.
const Gpu* find_gpu(std::string_view name);

/// What one rank computes and moves in one call. Fractions appear where the routing is a mean.
struct LayerWork {
  double rows = 0;         ///< token-expert pairs computed here, shared experts included
  double experts_hit = 0;  ///< local experts with at least one row
  double flops = 0;        ///< 6 * hidden * intermediate per row
  // Bytes of the rank's own memory, an upper estimate: no hit in L2.
  double weight_bytes = 0;   ///< weights and scales of the experts hit, read once
  double pool_bytes = 0;     ///< pulled rows, written and read
  double act_bytes = 0;      ///< activated rows, written and read
  double combine_bytes = 0;  ///< BF16 contributions to own tokens, written and read
  double y_bytes = 0;        ///< the output
  // Bytes over NVLink in the busier direction.
  double dispatch_bytes = 0;  ///< rows with scales, one copy per (token, expert)
  double combine_link_bytes = 0;
  double link_bytes = 0;        ///< the busier direction of both together
  double dedup_link_bytes = 0;  ///< the same with one copy per (token, rank), both ways

  [[nodiscard]] double hbm_bytes() const {
    return weight_bytes + pool_bytes + act_bytes + combine_bytes + y_bytes;
  }
};

/// Mean work of a rank when each of the ranks brings `tokens` tokens and every token chooses top_k
/// different experts uniformly. With N ranks, E experts, k = top_k, El = E / N:
///   experts hit        El * (1 - (1 - k/E)^(N * tokens))
///   copies per token   k * (N-1) / N to other ranks; with one copy per (token, rank)
///                      (N-1) * (1 - C(E-El, k) / C(E, k))
LayerWork mean_work(const Problem& problem, long tokens);

/// What an actual routing gives one rank.
struct RankLoad {
  long tokens = 0;           ///< own tokens
  long rows_sent = 0;        ///< own pairs with an expert, wherever it lives
  long rows_received = 0;    ///< pairs for own experts, own tokens included
  int experts_hit = 0;       ///< own routed experts with at least one row
  long remote_sent = 0;      ///< of rows_sent, those for other ranks
  long remote_received = 0;  ///< of rows_received, those from other ranks
  long copies_sent = 0;      ///< own tokens x other ranks that they visit
  long copies_received = 0;  ///< tokens of other ranks that visit this one
};

/// Counts the loads of every rank. topk_idx[r]: [tokens of r, top_k]; an id outside 0..experts-1
/// counts as none. Throws Error(invalid_argument) if the spans do not match the problem.
std::vector<RankLoad> count_loads(const Problem& problem,
                                  std::span<const std::span<const std::int64_t>> topk_idx);

/// Work of one rank under an actual routing; equal to mean_work where the load is the mean.
LayerWork actual_work(const Problem& problem, const RankLoad& load);

enum class Limit : std::uint8_t { hbm, nvlink, tensor };
const char* name(Limit limit);

/// Lower bound of a call's time: each resource alone, in microseconds, and the longest of them.
struct Bound {
  double hbm_us = 0;
  double nvlink_us = 0;
  double tensor_us = 0;
  double us = 0;
  Limit limit = Limit::hbm;
};

/// How many copies of a token's row travel to a rank that owns several of its experts.
enum class Copies : std::uint8_t { per_expert, per_rank };

/// The bound of one rank's work at the given rates.
Bound time_bound(const LayerWork& work, const GpuRates& rates, Precision precision,
                 Copies copies = Copies::per_expert);

/// The bound of a call with an actual routing: that of the rank for which it is longest.
Bound time_bound(const Problem& problem, std::span<const RankLoad> loads, const GpuRates& rates,
                 Copies copies = Copies::per_expert);

/// Bytes of one weight, its share of the scales included.
double bytes_per_weight(Precision precision);

}  // namespace megamoe
