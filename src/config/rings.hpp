#pragma once

#include "config/kernel_config.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Rows of the pool ring (pulled activations, waiting for L1) and of the act ring (activated
/// intermediates, waiting for L2). A slot is block_rows of them, so smaller blocks make more slots.
struct RingRows {
  int pool = 0;
  int act = 0;
  bool operator==(const RingRows&) const = default;
};

/// CTAs that the rings are sized for. A device with more runs correctly, with less overlap.
inline constexpr int kDesignCtas = 160;
/// The most blocks of kMaxBlockRows that the rings plan to have in L1 at once, so that narrow
/// layers, whose blocks have few tiles, do not make them huge.
inline constexpr int kMaxBlocksInFlight = 32;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr long ceil_div(long a, long b) { return (a + b - 1) / b; }

/// Blocks of kMaxBlockRows rows whose L1 tiles occupy kDesignCtas.
constexpr int blocks_in_flight(const Problem& p) {
  const int blocks = ceil_div(kDesignCtas, p.intermediate / kGranule);
  return blocks < kMaxBlocksInFlight ? blocks : kMaxBlocksInFlight;
}

/// The most blocks of `block_rows` rows that one rank can have in one call, whatever the routing.
constexpr long worst_case_blocks(const Problem& p, int block_rows) {
  const long routed = static_cast<long>(p.ranks) * p.max_tokens_per_rank * p.top_k;
  const long shared = static_cast<long>(p.max_tokens_per_rank) * p.shared_experts;
  const long rows = routed + shared;
  const long partial = rows < p.local_experts() ? rows : p.local_experts();
  return rows / block_rows + partial;
}

/// Ring sizes, from the Problem only. Pool: the blocks in L1, as many being pulled, as many pulled
/// ahead. Act: the blocks in L1, as many trailing until their L2, and a few so that the lag does
/// not stall.
constexpr RingRows ring_rows(const Problem& p) {
  const int in_flight = blocks_in_flight(p);
  const long worst = worst_case_blocks(p, kMaxBlockRows);
  const long pool = 3L * in_flight;
  const long act = 2L * in_flight + 4;
  return {.pool = static_cast<int>((pool < worst ? pool : worst) * kMaxBlockRows),
          .act = static_cast<int>((act < worst + 1 ? act : worst + 1) * kMaxBlockRows)};
}

/// Slots of the two rings.
struct RingSlots {
  int pool = 0;
  int act = 0;
};
/// As many as the rows allow.
constexpr RingSlots ring_slots(const Problem& p, int block_rows) {
  const RingRows rows = ring_rows(p);
  return {rows.pool / block_rows, rows.act / block_rows};
}
/// As many as the configuration uses.
constexpr RingSlots ring_slots(const Problem& p, const KernelConfig& c) {
  const RingSlots most = ring_slots(p, c.block_rows);
  return {c.pool_slots == 0 ? most.pool : c.pool_slots, c.act_slots == 0 ? most.act : c.act_slots};
}

}  // namespace megamoe
