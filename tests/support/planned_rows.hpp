#pragma once

#include <vector>

#include "ref/random_case.hpp"

namespace megamoe {

/// A row at its expert's rank, as the routing alone says: experts in order, rows of one by source,
/// then by token and slot; blocks of `block_rows` rows never hold two experts.
struct PlannedRow {
  int expert;  ///< local; shared experts after the routed ones
  int src;
  int token;
  int slot;
  int block;
  int row;  ///< in the block
};

inline std::vector<PlannedRow> planned_rows(const ref::RandomInputs& inputs, int rank,
                                            int block_rows) {
  const Problem& p = inputs.problem;
  std::vector<PlannedRow> rows;
  int blocks = 0;
  for (int e = 0; e < p.local_experts(); ++e) {
    int of_expert = 0;
    const auto append = [&](int src, int token, int slot) {
      rows.push_back(
          {e, src, token, slot, blocks + of_expert / block_rows, of_expert % block_rows});
      ++of_expert;
    };
    const bool shared = e >= p.experts_per_rank();
    for (int src = 0; src < p.ranks; ++src) {
      const ref::RankTokens& from = inputs.ranks[static_cast<std::size_t>(src)];
      for (int token = 0; token < from.num_tokens; ++token) {
        if (shared) {
          if (src == rank) append(src, token, p.top_k + e - p.experts_per_rank());
          continue;
        }
        const std::int64_t* ids = from.topk_idx.data() + static_cast<long>(token) * p.top_k;
        for (int slot = 0; slot < p.top_k; ++slot) {
          if (ids[slot] == rank * p.experts_per_rank() + e) append(src, token, slot);
        }
      }
    }
    blocks += (of_expert + block_rows - 1) / block_rows;
  }
  return rows;
}

}  // namespace megamoe
