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

/// The order of a wave's GEMM tickets. Blocks go in groups; step k holds all L1 tiles of group k,
/// then all L2 tiles of group k - lag. Within a group the blocks vary fastest, so that a tile of
/// weights serves them all while it is in L2. L2 trails so that its inputs are there when its turn
/// comes, and outgoing results do not fight incoming rows.
struct GemmSchedule {
  u32 blocks = 0;
  u32 l1_tiles = 0;
  u32 l2_tiles = 0;
  u32 lag = 0;    ///< groups
  u32 group = 1;  ///< blocks

  [[nodiscard]] MEGAMOE_HD constexpr u32 num_tickets() const {
    return blocks * (l1_tiles + l2_tiles);
  }

  [[nodiscard]] MEGAMOE_HD constexpr GemmTile tile(u32 ticket) const {
    // The last step that starts at or before the ticket.
    u32 low = 0;
    u32 high = num_groups() + lag - 1;
    while (low < high) {
      const u32 middle = (low + high + 1) / 2;
      if (first_ticket(middle) <= ticket) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const u32 within = ticket - first_ticket(low);
    const u32 l1 = (blocks_before(low + 1) - blocks_before(low)) * l1_tiles;
    return within < l1 ? place(false, low, within) : place(true, low - lag, within - l1);
  }

 private:
  [[nodiscard]] MEGAMOE_HD constexpr u32 num_groups() const { return div_up(blocks, group); }
  [[nodiscard]] MEGAMOE_HD constexpr u32 blocks_before(u32 group_idx) const {
    return lesser(group_idx * group, blocks);
  }
  [[nodiscard]] MEGAMOE_HD constexpr u32 first_ticket(u32 step) const {
    return blocks_before(step) * l1_tiles + (step > lag ? blocks_before(step - lag) * l2_tiles : 0);
  }
  [[nodiscard]] MEGAMOE_HD constexpr GemmTile place(bool is_l2, u32 group_idx, u32 within) const {
    const u32 first = blocks_before(group_idx), count = blocks_before(group_idx + 1) - first;
    return {is_l2, first + within % count, within / count};
  }
};

/// The schedule of a wave with `blocks` blocks.
MEGAMOE_HD constexpr GemmSchedule gemm_schedule(const Geometry& g, u32 blocks) {
  return {blocks, g.l1_tiles, g.l2_tiles, g.lag_blocks / g.group_blocks, g.group_blocks};
}

}  // namespace megamoe::protocol
