#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "megamoe/problem.hpp"
#include "ref/random_case.hpp"

// Who sends what where in the unfused chain, as counts and row numbers. All of it follows from the
// routing on the host, before anything is timed: a layer in use would have to exchange the counts
// first, so this favours the chain.

namespace megamoe::cli::unfused {

/// A count, which is never negative, as the size that it is.
constexpr std::size_t size(int count) { return static_cast<std::size_t>(count); }

/// Rows of an expert are padded to a multiple of this: cuBLASLt's block scales want it.
inline constexpr int kRowAlignment = 4;
/// In lists of rows: none.
inline constexpr std::int32_t kNoRow = -1;

/// One rank's part. Rows of four kinds have numbers of their own:
///   token        own tokens
///   input row    own tokens, then the rows that other ranks sent, rank after rank
///   expert row   rows of the local experts (routed, then shared), each expert's padded
///   output row   own expert rows, then those that came back, rank after rank
struct RankPlan {
  int num_tokens = 0;

  // Dispatch: one copy of a token per rank that it visits.
  std::vector<std::int32_t> sent;  ///< [sent rows] token; grouped by destination, then ascending
  std::vector<int> sent_rows;      ///< [ranks] of those, to each rank; none to itself
  std::vector<int> received_rows;  ///< [ranks] from each rank

  // The experts' rows.
  std::vector<int> expert_rows;             ///< [local experts] without padding
  std::vector<int> expert_begin;            ///< [local experts + 1] first expert row
  std::vector<std::int32_t> source;         ///< [expert rows] input row, kNoRow: padding
  std::vector<std::int32_t> expert_of_row;  ///< [expert rows] local expert

  // Back: one row per slot.
  std::vector<std::int32_t> returned;  ///< [returned rows] expert row; grouped by destination, then
                                       ///< by its token and slot
  std::vector<int> returned_rows;      ///< [ranks] of those, to each rank
  std::vector<int> gathered_rows;      ///< [ranks] from each rank

  /// [tokens][contributions] output row of each slot, shared experts last; kNoRow: none.
  std::vector<std::int32_t> contribution;

  [[nodiscard]] int padded_rows() const { return expert_begin.back(); }
  [[nodiscard]] int padded_rows_of(int expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return expert_begin[e + 1] - expert_begin[e];
  }
};

/// Sums of a list of counts: total_rows(plan.received_rows).
int total_rows(std::span<const int> counts);

/// The plan of every rank. Ids outside 0..experts-1 are no expert. Throws Error(invalid_argument)
/// when the routing does not fit the problem.
std::vector<RankPlan> make_plan(const Problem& problem, std::span<const ref::TokenRouting> routing);

}  // namespace megamoe::cli::unfused
