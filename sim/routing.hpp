#pragma once

#include <cstdint>
#include <vector>

#include "sim/scenario.hpp"

namespace megamoe::sim {

/// Who sends what to whom in every call of a run; a function of the scenario and the seed.
class RoutingTable {
 public:
  RoutingTable(const Scenario& scenario, u32 group, u64 seed);

  [[nodiscard]] u32 num_tokens(u32 call, u32 rank) const { return tokens_[call * ranks_ + rank]; }
  [[nodiscard]] std::int64_t id(u32 call, u32 rank, u32 token, u32 slot) const {
    return ids_[((call * ranks_ + rank) * capacity_ + token) * top_k_ + slot];
  }
  /// Rows that src sends to dst, shared experts included.
  [[nodiscard]] u32 rows(u32 call, u32 src, u32 dst) const;
  /// Calls that the table has, the one after a reset included.
  [[nodiscard]] u32 num_calls() const { return calls_; }

 private:
  [[nodiscard]] std::int64_t choose(Routing kind, u32 call, u32 rank, u32 slot, u64 bits) const;

  u32 ranks_;
  u32 experts_per_rank_;
  u32 top_k_;
  u32 shared_;
  u32 capacity_;
  u32 calls_;
  std::vector<u32> tokens_;        // [call][rank]
  std::vector<std::int64_t> ids_;  // [call][rank][token][slot]
};

}  // namespace megamoe::sim
