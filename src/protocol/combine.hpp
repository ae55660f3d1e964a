#pragma once

#include "protocol/fault.hpp"

/// Combine: results go straight to their tokens' slots on the source rank; `arrived` there counts
/// them in rows x granules of 128 channels, whatever the tiles, so ranks may choose different
/// configurations.
namespace megamoe::protocol {

/// `rows` rows of source `src`, `granules` granules each, are in their combine slots.
template <class Env>
MEGAMOE_HD void publish_contributions(Call<Env>& c, u32 wave, u32 src, u32 rows, u32 granules) {
  // [R:arrived] -> wait_arrived on rank src.
  c.env.template fetch_add<Order::release, Scope::sys>(c.m.arrived(src, wave, c.g.rank),
                                                       static_cast<u64>(rows) * granules);
}

/// The sum of a wave: waits for every contribution of rank `dst`.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_arrived(Call<Env>& c, u32 wave, u32 dst) {
  const u64* expected_word = c.m.expected(c.g, c.parity(), wave) + dst;
  u64 expected = 0;
  const bool routed = wait_until(
      c, Site{Phase::counted, c.g.rank, wave, c.epoch},
      // [A:expected] pairs with store_expected.
      [&] { return expected = c.env.template load<Order::relaxed, Scope::gpu>(expected_word); },
      [&](u64 seen) { return tag_of(seen) == c.epoch; });
  if (!routed) return false;
  const u64* arrived_word = c.m.arrived(c.g.rank, wave, dst);
  const Site site{Phase::arrived, dst, wave, value_of(expected)};
  u64 arrived = 0;
  bool surplus = false;
  const bool in_time = wait_until(
      c, site,
      // [A:arrived] pairs with publish_contributions on rank dst.
      [&] { return arrived = c.env.template load<Order::acquire, Scope::sys>(arrived_word); },
      [&](u64 seen) {
        const u32 missing = value_of(expected) - value_of(seen);
        // A call adds less than 2^31, so a larger difference means that arrived is ahead.
        surplus = missing > 0x80000000U;
        return surplus || missing == 0;
      });
  if (surplus) raise_fault(c, site, value_of(arrived));
  // Peers wrote the combine slots by ordinary stores; the sum may read them by bulk loads.
  c.env.fence_proxy_generic_to_async();
  return in_time && !surplus;
}

}  // namespace megamoe::protocol
