#pragma once

#include "protocol/fault.hpp"

/// Work is claimed, never assigned: an agent that runs owns what it claimed, so nobody waits for a
/// CTA that may not be running.
namespace megamoe::protocol {

/// The next ticket of a sequence. Relaxed: a ticket carries no payload; its words were zeroed in
/// the call before.
template <class Env>
MEGAMOE_HD u32 claim(Call<Env>& c, u32* word) {
  return c.env.template fetch_add<Order::relaxed, Scope::gpu>(word, 1U);
}

/// One tile of one block's L1 or L2.
struct GemmTile {
  bool is_l2 = false;
  u32 block = 0;  ///< within the wave
  u32 tile = 0;   ///< within the block
};

/// The order of a wave's GEMM tickets: step k holds all L1 tiles of block k, then all L2 tiles of
/// block k - lag. L2 trails so that its inputs are there when its turn comes, and outgoing results
/// do not fight incoming rows.
struct GemmSchedule {
  u32 blocks = 0;
  u32 l1_tiles = 0;
  u32 l2_tiles = 0;
  u32 lag = 0;

  [[nodiscard]] MEGAMOE_HD constexpr u32 num_tickets() const {
    return blocks * (l1_tiles + l2_tiles);
  }

  [[nodiscard]] MEGAMOE_HD constexpr GemmTile tile(u32 ticket) const {
    const u32 lead = lesser(lag, blocks);  // steps that hold L1 tiles only
    const u32 lead_tickets = lead * l1_tiles;
    if (ticket < lead_tickets) return {false, ticket / l1_tiles, ticket % l1_tiles};
    ticket -= lead_tickets;
    const u32 both = l1_tiles + l2_tiles;
    const u32 both_tickets = (blocks - lead) * both;
    if (ticket < both_tickets) {
      const u32 step = ticket / both;
      const u32 within = ticket % both;
      if (within < l1_tiles) return {false, lead + step, within};
      return {true, step, within - l1_tiles};
    }
    ticket -= both_tickets;  // steps that hold L2 tiles only
    return {true, blocks - lead + ticket / l2_tiles, ticket % l2_tiles};
  }
};

}  // namespace megamoe::protocol
