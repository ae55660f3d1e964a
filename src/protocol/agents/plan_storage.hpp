#pragma once

#include <vector>

#include "protocol/plan.hpp"
#include "protocol/route.hpp"

namespace megamoe::protocol {

/// A plan with its tables and the counts it was made from, for an agent that is one thread.
class PlanStorage {
 public:
  explicit PlanStorage(const Geometry& g)
      : ends_(static_cast<std::size_t>(g.ranks) * g.local_experts),
        tables_(static_cast<std::size_t>(g.local_experts) * 3) {
    plan_.experts = g.local_experts;
    plan_.block_rows = g.block_rows;
    plan_.pull_rows = g.pull_rows;
    plan_.row_end = tables_.data();
    plan_.block_end = tables_.data() + g.local_experts;
    plan_.chunk_end = tables_.data() + 2 * static_cast<std::size_t>(g.local_experts);
  }

  /// Waits for the counts of all sources and plans the wave behind the blocks of earlier waves.
  template <class Env>
  [[nodiscard]] bool read(Call<Env>& c, u32 wave) {
    const u32 blocks_before = wave == 0 ? 0 : plan_.first_block + plan_.num_blocks();
    for (u32 src = 0; src < c.g.ranks; ++src) {
      for (u32 e = 0; e < c.g.local_experts; ++e) {
        if (!read_count(c, wave, src, e, ends_[index(c.g, src, e)])) return false;
      }
    }
    plan_.first_block = blocks_before;
    make_plan(plan_, [&](u32 e) {
      u32 rows = 0;
      for (u32 src = 0; src < c.g.ranks; ++src) rows += count(c.g, src, e);
      return rows;
    });
    return true;
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// An entry of a source's list.
  struct Position {
    u32 src;
    u32 entry;
  };
  /// Where row `row` of a local expert is listed: rows are ordered by source, then by token.
  [[nodiscard]] Position locate(const Geometry& g, u32 expert, u32 row) const {
    u32 src = 0;
    while (row >= count(g, src, expert)) row -= count(g, src++, expert);
    return {src, begin(g, src, expert) + row};
  }

 private:
  static std::size_t index(const Geometry& g, u32 src, u32 e) {
    return static_cast<std::size_t>(src) * g.local_experts + e;
  }
  [[nodiscard]] u32 begin(const Geometry& g, u32 src, u32 e) const {
    return e == 0 ? 0 : ends_[index(g, src, e - 1)];
  }
  [[nodiscard]] u32 count(const Geometry& g, u32 src, u32 e) const {
    return ends_[index(g, src, e)] - begin(g, src, e);
  }

  std::vector<u32> ends_;
  std::vector<u32> tables_;
  Plan plan_;
};

}  // namespace megamoe::protocol
