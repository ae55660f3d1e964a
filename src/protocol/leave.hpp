#pragma once

#include "protocol/fault.hpp"

/// How CTAs enter and leave a call.
namespace megamoe::protocol {

/// What a CTA learns when it starts.
struct Entry {
  u32 epoch = 0;
  u32 rank = 0;  ///< of the launch's ranks: 0 unless virtual
  u32 cta = 0;   ///< start number within that rank
  u32 grid = 0;  ///< CTAs of that rank
};

/// Takes a start number. With R virtual ranks in one launch the numbers are dealt to the ranks in
/// turn, so that any R resident CTAs serve all of them. `header` belongs to the launch's first
/// rank; `launch_grid` counts all CTAs.
template <class Env>
MEGAMOE_HD Entry enter(Env& env, LocalHeader* header, u32 launch_ranks, u32 launch_grid) {
  // Relaxed: the epoch was stored by an earlier launch.
  const u64 word = env.template fetch_add<Order::relaxed, Scope::gpu>(&header->start, u64{1});
  const u32 number = value_of(word);
  Entry e;
  e.epoch = tag_of(word);
  e.rank = number % launch_ranks;
  e.cta = number / launch_ranks;
  e.grid = (launch_grid - e.rank + launch_ranks - 1) / launch_ranks;
  return e;
}

/// Checks that no second call is in flight and that no rank has given up.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool may_start(Call<Env>& c) {
  if (aborted(c)) return false;
  if (c.cta >= c.grid) {
    raise_fault(c, Site{Phase::start, c.g.rank, 0, c.grid}, c.cta);
    return false;
  }
  return true;
}

/// Zeroes the words of the other parity, which the call before this one used and the next will use.
/// `agents` of them share the work; `agent` is this one's number.
template <class Env>
MEGAMOE_HD void clear_other_parity(Call<Env>& c, u32 agent = 0, u32 agents = 1) {
  const u32 other = c.parity() ^ 1U;
  u32* words = reinterpret_cast<u32*>(c.m.words(other));
  // Relaxed: the next call starts after this one has ended.
  const auto zero = [&](u32* word, u32 count) {
    for (u32 i = agent; i < count; i += agents)
      c.env.template store<Order::relaxed, Scope::gpu>(word + i, 0U);
  };
  zero(words, sizeof(ParityWords) / sizeof(u32));
  zero(c.m.rows_ready(other), c.m.pool_words());
  zero(c.m.l1_done(other), c.m.act_words());
  zero(c.m.l2_done(other), c.m.act_words());
}

/// After all roles of a CTA have joined: true for the rank's last CTA, which owns what follows.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool last_out(Call<Env>& c) {
  // [R:exit_count] [A:exit_count] every CTA's accesses of the call come before what the last one
  // does.
  return c.env.template fetch_add<Order::acq_rel, Scope::gpu>(&c.m.words(c.parity())->exit_count,
                                                              1U) == c.grid - 1;
}

/// Ends the call on a rank: by its last CTA, after the statistics. The launch's last rank advances
/// the epoch; y is valid if and only if that happened.
template <class Env>
MEGAMOE_HD void finish(Call<Env>& c, LocalHeader* launch_header, u32 launch_ranks) {
  if (launch_ranks > 1) {
    // [R:ranks_out] [A:ranks_out] every rank's accesses come before the epoch moves.
    if (c.env.template fetch_add<Order::acq_rel, Scope::gpu>(&launch_header->ranks_out, 1U) !=
        launch_ranks - 1)
      return;
    // Relaxed: read by the next launch.
    c.env.template store<Order::relaxed, Scope::gpu>(&launch_header->ranks_out, 0U);
  }
  // Relaxed: read by the next launch and by the host after this one.
  c.env.template store<Order::relaxed, Scope::gpu>(&launch_header->start, tagged(c.epoch + 1, 0));
}

}  // namespace megamoe::protocol
