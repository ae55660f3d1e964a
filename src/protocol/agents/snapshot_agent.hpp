#pragma once

#include "protocol/agents/plan_storage.hpp"
#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::protocol {

/// Stands in for GemmAgent in the dispatch-only mode, for calls of one wave. It saves each block
/// and releases its slots, so that any routing finishes. `Work` copies:
///   void snapshot_rows_of(u32 expert, u32 rows)                      what the plan says
///   void snapshot_block(u32 block, u32 first_row, u32 rows)          rows of the pool, from row
///                                                                    first_row of the plan on
template <class Env, class Work>
class SnapshotAgent {
 public:
  SnapshotAgent(Call<Env>& call, Work& work) : c_(call), work_(work), plan_(call.g) {}

  /// False: the call was aborted.
  [[nodiscard]] bool run() {
    if (!plan_.read(c_, 0)) return false;
    const Plan& plan = plan_.plan();
    if (c_.cta == 0) {
      for (u32 e = 0; e < plan.experts; ++e) work_.snapshot_rows_of(e, plan.rows_of(e));
    }
    const GemmSchedule schedule(c_.g, plan.num_blocks());
    for (;;) {
      const u32 ticket = claim(c_, &c_.m.words(c_.parity())->gemm_ticket[0]);
      if (ticket >= schedule.num_tickets()) return true;
      const GemmTile t = schedule.tile(ticket);
      if (t.tile != 0) continue;  // a block's first tile stands for all
      if (!(t.is_l2 ? release_act_slot(t.block) : save(plan, t.block))) return false;
    }
  }

 private:
  bool save(const Plan& plan, u32 block) {
    if (!wait_rows(c_, block) || !wait_act_slot(c_, block)) return false;
    const Block b = plan.block(block);
    const u32 before = plan.row_end[b.expert] - plan.rows_of(b.expert);
    work_.snapshot_block(block, before + b.row_in_expert, b.rows);
    publish_l1(c_, block, c_.g.intermediate_granules);
    return true;
  }
  bool release_act_slot(u32 block) {
    if (!wait_l1(c_, block)) return false;
    publish_l2(c_, block, c_.g.hidden_granules);
    return true;
  }

  Call<Env>& c_;
  Work& work_;
  PlanStorage plan_;
};

}  // namespace megamoe::protocol
