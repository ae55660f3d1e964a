#pragma once

#include "protocol/agents/plan_storage.hpp"
#include "protocol/combine.hpp"
#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::protocol {

/// A block as the GEMMs see it.
struct BlockRef {
  u32 index = 0;   ///< call-wide: decides the ring slots
  u32 expert = 0;  ///< local
  u32 rows = 0;
};

// clang-format off
/// Scheduler, loader and math of one CTA as a single thread. `Work` computes; granules are 128
/// channels:
///   void l1_accumulate(BlockRef, u32 first_granule, u32 granules)
///       pool x W1, kept by the agent
///   void l1_store(BlockRef, u32 first_granule, u32 granules)
///       activation, re-quantisation -> act ring
///   void l2_tile(BlockRef, u32 first_granule, u32 granules)
///       act x W2 -> combine slots of the sources
///   u64 row_meta(BlockRef, u32 row)
///       what pull_row noted
// clang-format on
template <class Env, class Work>
class GemmAgent {
 public:
  GemmAgent(Call<Env>& call, Work& work) : c_(call), work_(work), plan_(call.g) {}

  /// False: the call was aborted.
  [[nodiscard]] bool run() {
    for (u32 wave = 0; wave < c_.g.num_waves; ++wave) {
      if (!plan_.read(c_, wave)) return false;
      if (!gemms(wave)) return false;
    }
    return true;
  }

 private:
  bool gemms(u32 wave) {
    const Plan& plan = plan_.plan();
    const GemmSchedule schedule(c_.g, plan.num_blocks());
    for (;;) {
      const u32 ticket = claim(c_, &c_.m.words(c_.parity())->gemm_ticket[wave]);
      if (ticket >= schedule.num_tickets()) return true;
      const GemmTile t = schedule.tile(ticket);
      const Block b = plan.block(t.block);
      const BlockRef block{plan.first_block + t.block, b.expert, b.rows};
      if (!(t.is_l2 ? l2(wave, block, t.tile) : l1(block, t.tile))) return false;
    }
  }

  bool l1(const BlockRef& block, u32 tile) {
    const u32 first = tile * c_.g.l1_tile_granules;
    const u32 granules = lesser(c_.g.l1_tile_granules, c_.g.intermediate_granules - first);
    if (!wait_rows(c_, block.index)) return false;
    work_.l1_accumulate(block, first, granules);
    if (!wait_act_slot(c_, block.index)) return false;
    work_.l1_store(block, first, granules);
    publish_l1(c_, block.index, granules);
    return true;
  }

  bool l2(u32 wave, const BlockRef& block, u32 tile) {
    const u32 first = tile * c_.g.l2_tile_granules;
    const u32 granules = lesser(c_.g.l2_tile_granules, c_.g.hidden_granules - first);
    if (!wait_l1(c_, block.index)) return false;
    work_.l2_tile(block, first, granules);
    // Rows are ordered by source: one addition per source with rows in the block.
    for (u32 row = 0; row < block.rows;) {
      const u32 src = tag_of(work_.row_meta(block, row));
      const u32 begin = row;
      while (row < block.rows && tag_of(work_.row_meta(block, row)) == src) ++row;
      publish_contributions(c_, wave, src, row - begin, granules);
    }
    publish_l2(c_, block.index, granules);
    return true;
  }

  Call<Env>& c_;
  Work& work_;
  PlanStorage plan_;
};

}  // namespace megamoe::protocol
