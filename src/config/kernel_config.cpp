#include "config/kernel_config.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/rings.hpp"

namespace megamoe {
namespace {

/// From this many rows per expert on, tokens go on the instruction's M: an eighth of the experts of
/// a random routing would have a second block of 64.
constexpr long kPrefillRowsPerExpert = 56;
constexpr int kMaxGroupBlocks = 8;

long mean_rows_per_expert(const Problem& p, long global_num_tokens) {
  return ceil_div(global_num_tokens * p.top_k, static_cast<long>(p.experts));
}

}  // namespace

int choose_num_waves(const Problem& /*problem*/, long /*global_num_tokens*/) { return 1; }

KernelConfig config_for_block_rows(const Problem& problem, int block_rows) {
  KernelConfig c;
  c.block_rows = block_rows;
  c.family = block_rows == kMaxBlockRows ? Family::prefill : Family::decode;
  // Few rows per ticket, so that all couriers share the first blocks.
  c.pull_rows = block_rows <= 16 ? 1 : block_rows <= 64 ? 2 : 4;
  c.route_tokens = 128;
  c.sum_tokens = 4;
  // L2 trails L1 by the blocks that are in L1 at once, so that its inputs are there when its turn
  // comes.
  const RingSlots slots = ring_slots(problem, block_rows);
  const int in_flight = ceil_div(kDesignCtas, problem.intermediate / kGranule);
  c.lag_blocks = std::clamp(in_flight + 2, 1, std::max(1, slots.act - 1));
  if (c.family == Family::decode) return c;  // an expert rarely has two blocks
  // Blocks of one expert read their weights from memory once per group: as many as have L1 tiles
  // for all CTAs. The rings hold a group beside those that are under way.
  const int l1_tiles = ceil_div(problem.intermediate, c.l1_tile_channels);
  for (int group = kMaxGroupBlocks; group > 1; group /= 2) {
    const int lag = std::max(1, c.lag_blocks / group) * group;
    if (group * l1_tiles > kDesignCtas) continue;
    if (2 * group > slots.pool || lag + 2 * group > slots.act) continue;
    c.group_blocks = group;
    c.lag_blocks = lag;
    break;
  }
  return c;
}

KernelConfig choose_config(const Problem& problem, long global_num_tokens) {
  const long rows = mean_rows_per_expert(problem, std::max(0L, global_num_tokens));
  int block_rows = kMaxBlockRows;
  if (rows < kPrefillRowsPerExpert) {
    // The smallest block that holds an expert's mean rows with room for the spread of a random
    // routing.
    block_rows = kMinBlockRows;
    while (block_rows < 64 && block_rows < rows + rows / 2) block_rows *= 2;
  }
  KernelConfig c = config_for_block_rows(problem, block_rows);
  c.num_waves = choose_num_waves(problem, global_num_tokens);
  return c;
}

std::string why_too_many_tickets(const Problem& p, const KernelConfig& c) {
  const long blocks = worst_case_blocks(p, c.block_rows);
  const long tiles =
      ceil_div(static_cast<long>(p.intermediate), static_cast<long>(c.l1_tile_channels)) +
      ceil_div(static_cast<long>(p.hidden), static_cast<long>(c.l2_tile_channels));
  if (blocks * tiles <= kMaxGemmTickets) return {};
  return fmt::format(
      "ranks = {}, max_tokens_per_rank = {}, top_k = {} and shared_experts = {} make up to {} "
      "blocks of {} rows on one rank, hidden = {} and intermediate = {} make {} tiles of each: {} "
      "tickets are more than {}",
      p.ranks, p.max_tokens_per_rank, p.top_k, p.shared_experts, blocks, c.block_rows, p.hidden,
      p.intermediate, tiles, blocks * tiles, kMaxGemmTickets);
}

std::string why_invalid(const Problem& problem, const KernelConfig& c) {
  const bool block_ok = c.block_rows >= kMinBlockRows && c.block_rows <= kMaxBlockRows &&
                        (c.block_rows & (c.block_rows - 1)) == 0;
  if (!block_ok)
    return fmt::format("block_rows = {} is not one of 8, 16, 32, 64, 128", c.block_rows);
  if (c.l1_tile_channels < kGranule || c.l1_tile_channels % kGranule != 0) {
    return fmt::format("l1_tile_channels = {} is not a multiple of {}", c.l1_tile_channels,
                       kGranule);
  }
  if (c.l2_tile_channels < kGranule || c.l2_tile_channels % kGranule != 0) {
    return fmt::format("l2_tile_channels = {} is not a multiple of {}", c.l2_tile_channels,
                       kGranule);
  }
  if (c.pull_rows < 1 || c.block_rows % c.pull_rows != 0) {
    return fmt::format("pull_rows = {} does not divide block_rows = {}", c.pull_rows, c.block_rows);
  }
  if (c.pull_rows > kMaxPullRows)
    return fmt::format("pull_rows = {} is more than {}", c.pull_rows, kMaxPullRows);
  if (c.route_tokens < 1) return fmt::format("route_tokens = {} must be positive", c.route_tokens);
  if (c.sum_tokens < 1) return fmt::format("sum_tokens = {} must be positive", c.sum_tokens);
  if (c.num_waves < 1 || c.num_waves > kMaxWaves) {
    return fmt::format("num_waves = {} is outside 1..{}", c.num_waves, kMaxWaves);
  }
  const RingSlots most = ring_slots(problem, c.block_rows);
  const RingSlots slots = ring_slots(problem, c);
  if (slots.pool < 1 || slots.pool > most.pool) {
    return fmt::format("pool_slots = {} is outside 1..{}", slots.pool, most.pool);
  }
  if (slots.act < 2 || slots.act > most.act) {
    return fmt::format("act_slots = {} is outside 2..{}", slots.act, most.act);
  }
  if (c.group_blocks < 1 || c.group_blocks > slots.pool) {
    return fmt::format("group_blocks = {} is outside 1..{} (pool slots)", c.group_blocks,
                       slots.pool);
  }
  if (c.lag_blocks < 1 || c.lag_blocks > slots.act - c.group_blocks) {
    return fmt::format("lag_blocks = {} is outside 1..{} (act slots - {})", c.lag_blocks,
                       slots.act - c.group_blocks, c.group_blocks);
  }
  if (c.lag_blocks % c.group_blocks != 0) {
    return fmt::format("lag_blocks = {} is not a multiple of group_blocks = {}", c.lag_blocks,
                       c.group_blocks);
  }
  return why_too_many_tickets(problem, c);
}

std::string to_string(const KernelConfig& c) {
  return fmt::format(
      "{}, blocks of {} rows in groups of {}, L1 tiles of {} and L2 tiles of {} channels, lag {}, "
      "{} wave{}",
      c.family == Family::decode ? "decode" : "prefill", c.block_rows, c.group_blocks,
      c.l1_tile_channels, c.l2_tile_channels, c.lag_blocks, c.num_waves,
      c.num_waves == 1 ? "" : "s");
}

}  // namespace megamoe
