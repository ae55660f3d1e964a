#pragma once

#include "protocol/env.hpp"
#include "protocol/memory.hpp"
#include "protocol/words.hpp"

/// Bounded waits and what happens when one ends without its condition.
namespace megamoe::protocol {

enum class Role : unsigned char { none, courier, scheduler, loader, math, publisher };

/// What an agent was waiting for, or found wrong.
enum class Phase : unsigned char {
  none,
  start,      ///< more CTAs started than the grid has: two calls in flight
  counted,    ///< earlier route chunks of this rank
  counts,     ///< a peer's counts
  entry,      ///< an entry of a peer's list
  pool_slot,  ///< the L1 that frees a pool slot
  rows,       ///< pulled rows of a block
  act_slot,   ///< the L2 that frees an act slot
  l1,         ///< the L1 tiles of a block
  arrived,    ///< contributions from a peer
  caller,     ///< abort() on the host
  // Waits inside a CTA: for another of its roles, or for copies that it has started itself.
  tile_room,      ///< a slot for a finished tile; the publisher frees it
  copies,         ///< rows or operands that are being copied into shared memory
  free_stage,     ///< a stage that math has used up
  full_stage,     ///< a stage with operands, or the end; from the scheduler
  finished_tile,  ///< a tile whose results are stored, or the end; from math
};

/// How long a wait inside a CTA lasts. Such a wait does not look at the abort word: the role that
/// is awaited does, or gives up itself. So each phase is more patient than all that may be under
/// way in the role it waits for, and of roles that wait for each other the one nearest to the cause
/// gives up first, and is the one in the record. `margin_ns`: the longest that a role is at work
/// between two waits.
MEGAMOE_HD constexpr u64 inner_patience_ns(Phase phase, u64 deadline_ns, u64 margin_ns) {
  const u64 unit = 2 * deadline_ns + margin_ns;
  switch (phase) {
    case Phase::copies:
      return deadline_ns;
    case Phase::free_stage:  // math: tile_room
      return 2 * unit;
    case Phase::full_stage:  // the scheduler: free_stage, a deadline, the landing of its copies
      return 5 * unit;
    case Phase::finished_tile:  // math: full_stage, then tile_room
      return 7 * unit;
    default:  // tile_room; the publisher waits for nothing but tiles
      return unit;
  }
}

/// Written once per reset generation by the CTA that claims the fault, to memory that the host can
/// read while the kernel runs.
struct FaultRecord {
  u32 rank = 0;
  u32 cta = 0;
  Role role = Role::none;
  Phase phase = Phase::none;
  u32 peer = 0;
  u32 epoch = 0;
  u64 index = 0;  ///< block, expert, wave or entry, by phase
  u64 expected = 0;
  u64 seen = 0;
  u32 flag = 0;  ///< reset generation once the record is complete
};

/// Upper half of an abort word: the reset generation. Lower half: who gave up, in which phase,
/// waiting for whom.
MEGAMOE_HD constexpr u64 abort_value(u32 generation, u32 rank, Phase phase, u32 peer) {
  return tagged(generation, (rank + 1) << 16U | static_cast<u32>(phase) << 8U | (peer & 0xFFU));
}
MEGAMOE_HD constexpr u32 abort_rank(u64 word) { return (value_of(word) >> 16U) - 1; }
MEGAMOE_HD constexpr Phase abort_phase(u64 word) {
  return static_cast<Phase>(value_of(word) >> 8U & 0xFFU);
}
MEGAMOE_HD constexpr u32 abort_peer(u64 word) { return value_of(word) & 0xFFU; }

/// What one agent of one CTA knows about the call it runs.
template <class Env>
struct Call {
  Env& env;
  const Geometry& g;
  const Memory& m;
  FaultRecord* record;  ///< host-visible
  u64 deadline_ns;
  u32 num_tokens;
  u32 grid;  ///< CTAs of this rank
  u32 cta;   ///< start number within the rank
  u32 epoch;
  u32 generation;
  Role role;
  [[nodiscard]] MEGAMOE_HD u32 parity() const { return parity_of(epoch); }
};

/// True once any rank has given up in this reset generation.
template <class Env>
MEGAMOE_HD bool aborted(Call<Env>& c) {
  // Relaxed: nothing is read on the strength of it but the word itself. Written by raise_abort.
  return tag_of(c.env.template load<Order::relaxed, Scope::sys>(c.m.abort_word(c.g.rank))) ==
         c.generation;
}

/// Tells every rank, this one included, that the call is over.
template <class Env>
MEGAMOE_HD void raise_abort(Env& env, const Memory& m, u32 ranks, u64 value) {
  // Relaxed: the word carries all that its readers use.
  for (u32 r = 0; r < ranks; ++r)
    env.template store<Order::relaxed, Scope::sys>(m.abort_word(r), value);
}

/// Place and meaning of a wait, for the fault record.
struct Site {
  Phase phase;
  u32 peer;
  u64 index;
  u64 expected;
};

/// Records the first fault of this generation on this rank and raises the abort words.
template <class Env>
MEGAMOE_HD void raise_fault(Call<Env>& c, const Site& site, u64 seen) {
  // Relaxed: the claim only elects a writer; its record is published below.
  if (!c.env.template compare_exchange<Order::relaxed, Scope::gpu>(&c.m.local_header()->fault_claim,
                                                                   0U, 1U))
    return;
  FaultRecord& r = *c.record;
  r.rank = c.g.rank;
  r.cta = c.cta;
  r.role = c.role;
  r.phase = site.phase;
  r.peer = site.peer;
  r.epoch = c.epoch;
  r.index = site.index;
  r.expected = site.expected;
  r.seen = seen;
  // [R:fault_record] the host's read of the flag.
  c.env.template store<Order::release, Scope::sys>(&r.flag, c.generation);
  raise_abort(c.env, c.m, c.g.ranks, abort_value(c.generation, c.g.rank, site.phase, site.peer));
}

/// A wait inside this agent's CTA ended without its condition: a fault, unless the call is over
/// already and the awaited role has left because of that.
template <class Env>
MEGAMOE_HD void raise_inner_fault(Call<Env>& c, Phase phase, u32 peer, u64 index) {
  if (!aborted(c)) raise_fault(c, Site{phase, peer, index, 0}, 0);
}

/// One poll that did not succeed. False when the wait is over: the call was aborted, or the
/// deadline passed and this agent has raised the fault. `started` and `polls` are 0 at the first
/// call.
template <class Env>
MEGAMOE_HD bool keep_waiting(Call<Env>& c, const Site& site, u64 seen, u64& started, u32& polls) {
  if (++polls % Env::kPollsPerCheck == 0) {
    if (aborted(c)) return false;
    const u64 now = c.env.now();
    if (started == 0) started = now;
    if (now - started > c.deadline_ns) {
      raise_fault(c, site, seen);
      return false;
    }
  }
  c.env.pause();
  return true;
}

/// Polls `load` until `done` accepts its value. False: the call is over.
template <class Env, class Load, class Done>
[[nodiscard]] MEGAMOE_HD bool wait_until(Call<Env>& c, const Site& site, Load load, Done done) {
  u64 started = 0;
  u32 polls = 0;
  for (;;) {
    const u64 seen = load();
    if (done(seen)) return true;
    if (!keep_waiting(c, site, seen, started, polls)) return false;
  }
}

}  // namespace megamoe::protocol
