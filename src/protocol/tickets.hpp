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

/// The order of a wave's GEMM tickets. Blocks come in groups of `group`. Step k holds all L1 tiles
/// of group k, then all L2 tiles of the group `lag` blocks before it: L2 trails so that its inputs
/// are there when its turn comes, and outgoing results do not fight incoming rows. Within a group
/// the tiles of one column have adjacent tickets, so that blocks of one expert read its weights at
/// about the same time.
struct GemmSchedule {
  u32 blocks = 0;
  u32 l1_tiles = 0;
  u32 l2_tiles = 0;
  u32 group = 1;
  u32 lag = 0;  ///< a multiple of `group`

  MEGAMOE_HD constexpr GemmSchedule(const Geometry& g, u32 num_blocks)
      : blocks(num_blocks),
        l1_tiles(g.l1_tiles),
        l2_tiles(g.l2_tiles),
        group(g.group_blocks),
        lag(g.lag_blocks) {}

  /// At most kMaxGemmTickets: the configuration was checked.
  [[nodiscard]] MEGAMOE_HD constexpr u32 num_tickets() const {
    return blocks * (l1_tiles + l2_tiles);
  }

  [[nodiscard]] MEGAMOE_HD constexpr GemmTile tile(u32 ticket) const {
    const u32 lead = lesser(lag, blocks);  // blocks in steps that hold L1 tiles only
    if (ticket < lead * l1_tiles) return in_groups(false, 0, ticket);
    ticket -= lead * l1_tiles;
    const u32 both = group * (l1_tiles + l2_tiles);  // of a step; the last may have fewer L1 tiles
    const u32 steps = div_up(blocks - lead, group);
    if (ticket < (blocks - lead) * l1_tiles + steps * group * l2_tiles) {
      const u32 first = ticket / both * group;
      const u32 within = ticket % both;
      const u32 l1_tickets = lesser(group, blocks - lead - first) * l1_tiles;
      if (within < l1_tickets) return in_groups(false, lead + first, within);
      return in_groups(true, first, within - l1_tickets);
    }
    // steps that hold L2 tiles only
    ticket -= (blocks - lead) * l1_tiles + steps * group * l2_tiles;
    return in_groups(true, steps * group, ticket);
  }

 private:
  /// The tile of the `ticket`-th ticket of groups that start at block `first`.
  [[nodiscard]] MEGAMOE_HD constexpr GemmTile in_groups(bool is_l2, u32 first, u32 ticket) const {
    const u32 per_group = group * (is_l2 ? l2_tiles : l1_tiles);
    first += ticket / per_group * group;
    ticket %= per_group;
    const u32 size = lesser(group, blocks - first);
    return {is_l2, first + ticket % size, ticket / size};
  }
};

}  // namespace megamoe::protocol
