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

/// Pull of `block`: waits until L1 of the block that had its pool slot is done. That also frees its
/// row metadata: L1 of it waited for L2 of the block whose metadata slot this is.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_pool_slot(Call<Env>& c, u32 block) {
  if (block < c.g.pool_slots) return true;
  const u32 before = block - c.g.pool_slots;
  const u32 target = l1_target(c.g, before);
  const bool free = wait_until(
      c, Site{Phase::pool_slot, c.g.rank, block, target},
      // [A:l1_done] pairs with publish_l1: L1's reads of the slot are over. Later generations may
      // have passed.
      [&] { return c.env.template load<Order::acquire, Scope::gpu>(l1_done_word(c, before)); },
      [&](u64 seen) { return seen >= target; });
  // L1 read the slot by bulk loads; scales and metadata are written by ordinary stores.
  c.env.fence_proxy_async_to_generic();
  return free;
}

/// Rows, scales and metadata of a chunk are in the pool.
template <class Env>
MEGAMOE_HD void publish_rows(Call<Env>& c, u32 block, u32 ready_units) {
  // Scales and metadata come from ordinary stores and are read by bulk loads.
  c.env.fence_proxy_generic_to_async();
  // [R:rows_ready] -> wait_rows.
  c.env.template fetch_add<Order::release, Scope::gpu>(rows_ready_word(c, block), ready_units);
}

/// L1 of `block`: waits for all its rows.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_rows(Call<Env>& c, u32 block) {
  const u32 target = rows_target(c.g, block);
  return wait_until(
      c, Site{Phase::rows, c.g.rank, block, target},
      // [A:rows_ready] pairs with publish_rows. Exact: the slot's next pull waits for this L1.
      [&] { return c.env.template load<Order::acquire, Scope::gpu>(rows_ready_word(c, block)); },
      [&](u64 seen) { return seen == target; });
}

/// Epilogue of an L1 tile of `block`: waits until L2 of the block that had its act slot is done.
/// Its tickets are lower, but claimed is not done.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_act_slot(Call<Env>& c, u32 block) {
  if (block < c.g.act_slots) return true;
  const u32 before = block - c.g.act_slots;
  const u32 target = l2_target(c.g, before);
  const bool free = wait_until(
      c, Site{Phase::act_slot, c.g.rank, block, target},
      // [A:l2_done] pairs with publish_l2: L2's reads of the slot are over.
      [&] { return c.env.template load<Order::acquire, Scope::gpu>(l2_done_word(c, before)); },
      [&](u64 seen) { return seen == target; });
  // L2 read the slot by bulk loads; the epilogue writes it by ordinary stores.
  c.env.fence_proxy_async_to_generic();
  return free;
}

/// An L1 tile's activated channels are in the act slot, and its reads of the pool slot are over.
template <class Env>
MEGAMOE_HD void publish_l1(Call<Env>& c, u32 block, u32 granules) {
  // The epilogue's ordinary stores are read by bulk loads.
  c.env.fence_proxy_generic_to_async();
  // [R:l1_done] -> wait_l1, wait_pool_slot.
  c.env.template fetch_add<Order::release, Scope::gpu>(l1_done_word(c, block), granules);
}

/// L2 of `block`: waits for all its L1 tiles.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_l1(Call<Env>& c, u32 block) {
  const u32 target = l1_target(c.g, block);
  return wait_until(
      c, Site{Phase::l1, c.g.rank, block, target},
      // [A:l1_done] pairs with publish_l1. Exact: the slot's next L1 waits for this L2.
      [&] { return c.env.template load<Order::acquire, Scope::gpu>(l1_done_word(c, block)); },
      [&](u64 seen) { return seen == target; });
}

/// An L2 tile's reads of the act slot and of the row metadata are over.
template <class Env>
MEGAMOE_HD void publish_l2(Call<Env>& c, u32 block, u32 granules) {
  // [R:l2_done] -> wait_act_slot.
  c.env.template fetch_add<Order::release, Scope::gpu>(l2_done_word(c, block), granules);
}

}  // namespace megamoe::protocol
