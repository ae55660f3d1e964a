#pragma once

#include "protocol/fault.hpp"

/// The pool ring holds pulled rows until their L1, the act ring activated intermediates until their
/// L2. Block b of the call uses slot b % slots, generation b / slots. Every generation adds the
/// same amount to a slot's counter, so the counter alone says how far its slot is.
namespace megamoe::protocol {

/// What rows_ready, l1_done and l2_done of a block read once it is complete.
MEGAMOE_HD constexpr u32 rows_target(const Geometry& g, u32 block) {
  return (block / g.pool_slots + 1) * g.block_rows;
}
MEGAMOE_HD constexpr u32 l1_target(const Geometry& g, u32 block) {
  return (block / g.act_slots + 1) * g.intermediate_granules;
}
MEGAMOE_HD constexpr u32 l2_target(const Geometry& g, u32 block) {
  return (block / g.act_slots + 1) * g.hidden_granules;
}

template <class Env>
MEGAMOE_HD u32* rows_ready_word(Call<Env>& c, u32 block) {
  return c.m.rows_ready(c.parity()) + block % c.g.pool_slots;
}
template <class Env>
MEGAMOE_HD u32* l1_done_word(Call<Env>& c, u32 block) {
  return c.m.l1_done(c.parity()) + block % c.g.act_slots;
}
template <class Env>
MEGAMOE_HD u32* l2_done_word(Call<Env>& c, u32 block) {
  return c.m.l2_done(c.parity()) + block % c.g.act_slots;
}

/// What a block waits for in one slot's counter.
struct SlotWait {
  const u32* word;
  u32 target;  ///< 0: nothing to wait for
  bool exact;  ///< equality; otherwise later generations may have passed
  Site site;
};

/// Pull of `block`: L1 of the block that had its pool slot is done. That also frees its row
/// metadata: L1 of it waited for L2 of the block whose metadata slot this is.
template <class Env>
[[nodiscard]] MEGAMOE_HD SlotWait pool_slot_wait(Call<Env>& c, u32 block) {
  const bool first = block < c.g.pool_slots;
  const u32 before = first ? block : block - c.g.pool_slots;
  const u32 target = first ? 0 : l1_target(c.g, before);
  return {l1_done_word(c, before), target, false, {Phase::pool_slot, c.g.rank, block, target}};
}
/// L1 of `block`: all its rows are there. The slot's next pull waits for this L1.
template <class Env>
[[nodiscard]] MEGAMOE_HD SlotWait rows_wait(Call<Env>& c, u32 block) {
  const u32 target = rows_target(c.g, block);
  return {rows_ready_word(c, block), target, true, {Phase::rows, c.g.rank, block, target}};
}
/// Results of L1 of `block`: L2 of the block that had its act slot is done. Its tickets are lower,
/// but claimed is not done.
template <class Env>
[[nodiscard]] MEGAMOE_HD SlotWait act_slot_wait(Call<Env>& c, u32 block) {
  const u32 target = l2_target(c.g, block) - c.g.hidden_granules;
  return {l2_done_word(c, block), target, false, {Phase::act_slot, c.g.rank, block, target}};
}
/// L2 of `block`: all its L1 tiles are done. The slot's next L1 waits for this L2.
template <class Env>
[[nodiscard]] MEGAMOE_HD SlotWait l1_wait(Call<Env>& c, u32 block) {
  const u32 target = l1_target(c.g, block);
  return {l1_done_word(c, block), target, true, {Phase::l1, c.g.rank, block, target}};
}

MEGAMOE_HD constexpr bool is_over(const SlotWait& wait, u64 seen) {
  return wait.exact ? seen == wait.target : seen >= wait.target;
}

/// One look at the counter.
template <class Env>
[[nodiscard]] MEGAMOE_HD u64 look_at(Call<Env>& c, const SlotWait& wait) {
  // [A:rows_ready] pairs with publish_rows, [A:l1_done] with publish_l1 (L1's reads of the pool
  // slot are over, and its results are there), [A:l2_done] with publish_l2 (L2's reads of the act
  // slot are over).
  return c.env.template load<Order::acquire, Scope::gpu>(wait.word);
}

template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_for(Call<Env>& c, const SlotWait& wait) {
  if (wait.target == 0) return true;
  return wait_until(
      c, wait.site, [&] { return look_at(c, wait); },
      [&](u64 seen) { return is_over(wait, seen); });
}

template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_pool_slot(Call<Env>& c, u32 block) {
  const bool free = wait_for(c, pool_slot_wait(c, block));
  // L1 read the slot by bulk loads; scales and metadata are written by ordinary stores.
  if (block >= c.g.pool_slots) c.env.fence_proxy_async_to_generic();
  return free;
}

/// Rows, scales and metadata of a chunk are in the pool.
template <class Env>
MEGAMOE_HD void publish_rows(Call<Env>& c, u32 block, u32 ready_units) {
  // Scales and metadata come from ordinary stores and are read by bulk loads.
  c.env.fence_proxy_generic_to_async();
  // [R:rows_ready] -> look_at(rows_wait).
  c.env.template fetch_add<Order::release, Scope::gpu>(rows_ready_word(c, block), ready_units);
}

template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_rows(Call<Env>& c, u32 block) {
  return wait_for(c, rows_wait(c, block));
}

template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_act_slot(Call<Env>& c, u32 block) {
  const bool free = wait_for(c, act_slot_wait(c, block));
  // L2 read the slot by bulk loads; the epilogue writes it by ordinary stores.
  if (block >= c.g.act_slots) c.env.fence_proxy_async_to_generic();
  return free;
}

/// An L1 tile's activated channels are in the act slot, and its reads of the pool slot are over.
template <class Env>
MEGAMOE_HD void publish_l1(Call<Env>& c, u32 block, u32 granules) {
  // The epilogue's ordinary stores are read by bulk loads.
  c.env.fence_proxy_generic_to_async();
  // [R:l1_done] -> look_at(l1_wait), look_at(pool_slot_wait).
  c.env.template fetch_add<Order::release, Scope::gpu>(l1_done_word(c, block), granules);
}

template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_l1(Call<Env>& c, u32 block) {
  return wait_for(c, l1_wait(c, block));
}

/// An L2 tile's reads of the act slot and of the row metadata are over.
template <class Env>
MEGAMOE_HD void publish_l2(Call<Env>& c, u32 block, u32 granules) {
  // [R:l2_done] -> look_at(act_slot_wait).
  c.env.template fetch_add<Order::release, Scope::gpu>(l2_done_word(c, block), granules);
}

}  // namespace megamoe::protocol
