#pragma once

#include <string>

#include "megamoe/problem.hpp"

namespace megamoe {

/// Which operand the expert's tokens are on the tensor core.
enum class Family : unsigned char {
  decode,   ///< weights on the instruction's M, tokens on N: few tokens per expert, bound by memory
  prefill,  ///< tokens on M, weights on N: many tokens per expert, bound by arithmetic
};

/// How one rank tiles and schedules one call. Ranks may use different configurations in the same
/// call, except for num_waves; nothing in the symmetric layout depends on it.
struct KernelConfig {
  Family family = Family::decode;
  int block_rows = 16;  ///< rows of one expert that share tiles: 8, 16, 32, 64 or 128
  int l1_tile_channels =
      128;  ///< intermediate channels of an L1 tile (two weight rows each, gate and up)
  int l2_tile_channels = 256;  ///< hidden channels of an L2 tile
  int pull_rows = 8;           ///< rows of one pull ticket, 1..kMaxPullRows; divides block_rows
  int route_tokens = 512;      ///< tokens of one route ticket
  int sum_tokens = 4;          ///< tokens of one sum ticket
  int num_waves = 1;           ///< waves of source tokens, 1..kMaxWaves; the same on every rank
  int group_blocks = 1;  ///< consecutive blocks whose tiles of one column have adjacent tickets
  int lag_blocks =
      1;  ///< blocks by which L2 trails L1 in the ticket order; a multiple of the group
  int pool_slots = 0;  ///< ring slots to use; 0: all that the ring's rows allow
  int act_slots = 0;
  bool operator==(const KernelConfig&) const = default;
};

inline constexpr int kMaxWaves = 4;
/// A courier on a GPU keeps the sources of a ticket's rows in shared memory.
inline constexpr int kMaxPullRows = 16;
/// The most GEMM tickets of one rank's call, whatever the routing: they are counted in 32 bits, and
/// every agent claims one more at the end.
inline constexpr long kMaxGemmTickets = 1L << 31;
inline constexpr int kMinBlockRows = 8;
inline constexpr int kMaxBlockRows = 128;
/// Channels that share one scale, and the unit in which progress of tiles is counted.
inline constexpr int kGranule = 128;

/// Waves for a call in which the group brings about `global_num_tokens` tokens.
int choose_num_waves(const Problem& problem, long global_num_tokens);

/// The configuration for a call in which the group brings about `global_num_tokens` tokens: a pure
/// function of its arguments, never of the SM count, the capacity or the stream.
KernelConfig choose_config(const Problem& problem, long global_num_tokens);

/// A configuration with the given rows per block and the values that follow from it.
KernelConfig config_for_block_rows(const Problem& problem, int block_rows);

/// The reason why `config` may have more than kMaxGemmTickets in a call of `problem`, with the
/// numbers, or an empty string. Of `config` it reads the block's rows and the tiles' channels.
std::string why_too_many_tickets(const Problem& problem, const KernelConfig& config);

/// The reason why `config` cannot run `problem`, or an empty string.
std::string why_invalid(const Problem& problem, const KernelConfig& config);

/// "decode, blocks of 16 rows, ..." for reports.
std::string to_string(const KernelConfig& config);

}  // namespace megamoe
