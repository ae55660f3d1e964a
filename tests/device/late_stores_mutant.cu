// The instances of late_stores.cuh with a fault: the sum compares what has arrived with a number
// that repeats from call to call.
#include "protocol/combine.hpp"
#include "roles/device_env.cuh"

namespace megamoe::protocol {

/// What this call brings, not what all calls have brought: true at once from the second call on.
template <>
MEGAMOE_HD inline bool wait_arrived<DeviceEnv>(Call<DeviceEnv>& c, u32 wave, u32 dst) {
  const u64* now = c.m.expected(c.g, c.parity(), wave) + dst;
  const u64* before = c.m.expected(c.g, c.parity() ^ 1U, wave) + dst;
  u64 expected = 0;
  const bool routed = wait_until(
      c, Site{Phase::counted, c.g.rank, wave, c.epoch},
      [&] { return expected = c.env.template load<Order::relaxed, Scope::gpu>(now); },
      [&](u64 seen) { return tag_of(seen) == c.epoch; });
  if (!routed) return false;
  const u32 of_call =
      value_of(expected) - value_of(c.env.template load<Order::relaxed, Scope::gpu>(before));
  const u64* arrived = c.m.arrived(c.g.rank, wave, dst);
  return wait_until(
      c, Site{Phase::arrived, dst, wave, of_call},
      [&] { return c.env.template load<Order::acquire, Scope::sys>(arrived); },
      [&](u64 seen) { return value_of(seen) >= of_call; });
}

}  // namespace megamoe::protocol

#include "tests/device/late_stores.cuh"
