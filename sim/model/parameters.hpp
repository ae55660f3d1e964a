#pragma once

#include <string>

#include "sim/model/state.hpp"
#include "sim/random.hpp"

namespace megamoe::sim::model {

/// What is left out, or done otherwise, in a variant that must fail.
struct Variant {
  bool one_parity = false;
  bool zero_counts_unpublished = false;
  bool plain_lists = false;  ///< entries do not say which call wrote them
  bool pool_not_awaited = false;
  bool act_not_awaited = false;
  bool rows_deferred = false;   ///< told with the next block's
  bool l1_deferred = false;     ///< told with the next tile
  bool waits_for_next = false;  ///< a scheduler, before the tile in work is loaded
  bool sum_first = false;       ///< before any pull
  bool sum_after_one_pull = false;
  bool leaves_without_arrived = false;
  bool first_out_leaves = false;
  bool static_deal = false;  ///< virtual ranks by block index
  bool route_by_block_index = false;
  bool next_kernel_early = false;  ///< CTAs of call n+1 start before call n has left
};

struct Parameters {
  int ranks = 2;
  int ctas = 1;
  int calls = 3;
  int tokens = 2;
  int pool_slots = 2;
  int act_slots = 2;
  int lag = 1;
  int group = 1;     ///< blocks; lag is a multiple
  int resident = 1;  ///< CTAs that run at once, of a rank or of all virtual ranks
  bool virtual_ranks = false;
  bool claims_ahead = false;
  bool pipelined = false;  ///< a CTA's roles as the GPU has them
  Variant variant = {};
};

enum class Pattern : u8 {
  idle,
  all_to_0,
  to_next,
  to_self,
  alternating,
  spread,
  back_and_forth,
  random
};
inline constexpr int kPatterns = 8;
const char* name(Pattern pattern);

/// Who sends each token where, and the blocks that follow.
struct Routing {
  struct Block {
    u8 src;
    u8 token;
  };
  Routing(const Parameters& p, Pattern pattern, u64 seed);

  [[nodiscard]] int rows(int call, int src, int to) const { return sent[call][src][to]; }

  int dst[kCalls + 1][kRanks][kTokens] = {};  ///< -1: nowhere
  Block block[kCalls + 1][kRanks][kBlocks] = {};
  int blocks[kCalls + 1][kRanks] = {};
  int sent[kCalls + 1][kRanks][kRanks] = {};
};

}  // namespace megamoe::sim::model
