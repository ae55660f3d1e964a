#pragma once

#include <span>
#include <string_view>

#include "sim/view.hpp"

namespace megamoe::sim {

/// Which agents a CTA consists of.
enum class Roles : unsigned char {
  threads,  ///< courier and GEMM agent, as on the CPU
  warps,    ///< two couriers, scheduler, loader, math and publisher, as on a GPU
  either,   ///< by seed
};

enum class Trouble : unsigned char {
  none,
  dead_rank,     ///< the last rank never makes call 2; then all reset and go on
  stuck_rank,    ///< the last rank stops in call 2 once its counts are out; then reset
  caller_abort,  ///< rank 0's host aborts in call 2, which the last rank never makes; then reset
  missing_cta,   ///< one CTA of rank 0 never starts in the last call
};

enum class Routing : unsigned char {
  by_seed,
  none,
  all_to_0,
  to_next,
  to_self,
  alternating,  ///< in odd calls rank 0 sends to the others, in even calls all are idle or local
  spread,
  random,  ///< with -1 and ids out of range
};

/// What is simulated: a small problem, its devices, and what goes wrong around it. Everything else,
/// the routing of each call and all choices of order, follows from the seed.
struct Scenario {
  const char* name = "";
  const char* about = "";
  u32 ranks = 2;
  u32 experts_per_rank = 2;
  u32 top_k = 2;
  u32 shared_experts = 0;
  u32 capacity = 3;
  u32 granules = 1;  ///< of hidden and of intermediate
  u32 calls = 3;
  u32 ctas = 1;    ///< of a rank
  u32 slots = 1;   ///< of a device: CTAs that run at once
  u32 layers = 1;  ///< that share the devices
  u32 block_rows = 2;
  u32 pull_rows = 1;
  u32 route_tokens = 8;
  u32 sum_tokens = 2;
  u32 waves = 1;
  u32 pool_slots = 2;
  u32 act_slots = 2;
  u32 lag = 1;
  u32 group = 1;               ///< blocks; lag is a multiple, lag + group at most the act slots
  bool mixed_tiles = false;    ///< odd ranks have tiles of all granules, even ranks of one
  bool virtual_ranks = false;  ///< one launch on one device
  bool late_ctas = false;      ///< by seed some CTAs start only when nobody else can go on
  bool random_sizes = false;   ///< by seed: rings, lag and chunks
  Roles roles = Roles::either;
  Routing routing = Routing::by_seed;
  bool full_tokens = false;  ///< every rank always brings as many tokens as it may
  Trouble trouble = Trouble::none;
  u32 share = 1;  ///< of the seeds of a run of everything
};

std::span<const Scenario> scenarios();
/// 16 and 72 ranks: a run takes seconds.
std::span<const Scenario> large_scenarios();
/// nullptr if there is none.
const Scenario* find_scenario(std::string_view name);

}  // namespace megamoe::sim
