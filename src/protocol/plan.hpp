#pragma once

#include "protocol/geometry.hpp"

/// Plan: pure arithmetic on the counts of one wave. Every CTA computes its own copy.
namespace megamoe::protocol {

/// Rows of one pull ticket: part of one block.
struct PullChunk {
  u32 block = 0;          ///< call-wide
  u32 expert = 0;         ///< local
  u32 row_in_expert = 0;  ///< of the chunk's first row
  u32 row_in_block = 0;
  u32 rows = 0;
  /// What its publication adds to rows_ready: its rows; the last chunk of a block adds up to
  /// block_rows, so that every generation of a slot adds the same.
  u32 ready_units = 0;
};

/// A block: rows of one expert that share tiles.
struct Block {
  u32 expert = 0;
  u32 row_in_expert = 0;
  u32 rows = 0;
};

/// Blocks and pull tickets of one wave. The tables are inclusive prefix sums over local experts, in
/// memory that the caller owns (shared memory, or a vector).
struct Plan {
  u32 experts = 0;
  u32 block_rows = 1;
  u32 pull_rows = 1;
  u32 first_block =
      0;  ///< call-wide index of the wave's first block: rings run on from wave to wave
  u32* row_end = nullptr;
  u32* block_end = nullptr;
  u32* chunk_end = nullptr;

  [[nodiscard]] MEGAMOE_HD u32 num_rows() const { return row_end[experts - 1]; }
  [[nodiscard]] MEGAMOE_HD u32 num_blocks() const { return block_end[experts - 1]; }
  [[nodiscard]] MEGAMOE_HD u32 num_chunks() const { return chunk_end[experts - 1]; }
  [[nodiscard]] MEGAMOE_HD u32 rows_of(u32 expert) const {
    return row_end[expert] - begin(row_end, expert);
  }

  /// Block `index` of the wave.
  [[nodiscard]] MEGAMOE_HD Block block(u32 index) const {
    const u32 expert = owner(block_end, index);
    const u32 first_row = (index - begin(block_end, expert)) * block_rows;
    return {expert, first_row, lesser(block_rows, rows_of(expert) - first_row)};
  }

  /// Pull ticket `ticket` of the wave: tickets are in block order and never straddle blocks.
  [[nodiscard]] MEGAMOE_HD PullChunk chunk(u32 ticket) const {
    const u32 per_block = block_rows / pull_rows;  // only an expert's last block has fewer
    PullChunk c;
    c.expert = owner(chunk_end, ticket);
    const u32 in_expert = ticket - begin(chunk_end, c.expert);
    const u32 in_block = in_expert % per_block;
    c.block = first_block + begin(block_end, c.expert) + in_expert / per_block;
    c.row_in_expert = in_expert * pull_rows;
    c.row_in_block = in_block * pull_rows;
    const u32 rows_left = rows_of(c.expert) - c.row_in_expert;
    c.rows = lesser(pull_rows, rows_left);
    const bool last_of_block = rows_left <= pull_rows || in_block == per_block - 1;
    c.ready_units = last_of_block ? block_rows - c.row_in_block : pull_rows;
    return c;
  }

 private:
  [[nodiscard]] MEGAMOE_HD static u32 begin(const u32* ends, u32 expert) {
    return expert == 0 ? 0 : ends[expert - 1];
  }

  /// The expert whose half-open range of the prefix sum holds `index`.
  [[nodiscard]] MEGAMOE_HD u32 owner(const u32* ends, u32 index) const {
    u32 low = 0;
    u32 high = experts - 1;
    while (low < high) {
      const u32 middle = (low + high) / 2;
      if (ends[middle] > index) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

/// Fills the plan's tables from rows(e), the rows of local expert e from all sources.
template <class Rows>
MEGAMOE_HD void make_plan(Plan& plan, Rows rows) {
  u32 row_total = 0;
  u32 block_total = 0;
  u32 chunk_total = 0;
  for (u32 e = 0; e < plan.experts; ++e) {
    const u32 n = rows(e);
    plan.row_end[e] = row_total += n;
    plan.block_end[e] = block_total += div_up(n, plan.block_rows);
    plan.chunk_end[e] = chunk_total += div_up(n, plan.pull_rows);
  }
}

}  // namespace megamoe::protocol
