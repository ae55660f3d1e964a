#pragma once

#include <cstdint>
#include <span>

#include "cpu/work.hpp"
#include "protocol/fault.hpp"

namespace megamoe::cpu {

/// One rank's part of a launch.
struct RankLaunch {
  protocol::Geometry geometry;
  const protocol::Memory* memory = nullptr;
  CallData data;
  protocol::FaultRecord* record = nullptr;
  protocol::u32 num_tokens = 0;
  protocol::u32 generation = 0;
  std::int64_t* recv_stats = nullptr;
};

struct LaunchOptions {
  int grid = 1;  ///< CTAs of the launch, at least one per rank
  std::uint64_t deadline_ns = 0;
  std::uint64_t delay_seed = 0;  ///< not 0: random delays between protocol steps
  int thread_limit = 0;          ///< not 0: no more threads can be made, for tests
};

struct Launch {
  /// Several ranks in one launch are virtual ranks: each CTA learns at its start which one it
  /// serves.
  std::span<const RankLaunch> ranks;
  LaunchOptions options;
};

/// Runs launches side by side to their end: `grid` CTAs of two threads each, courier and GEMM
/// agent. Whether a call succeeded is in memory: the epoch of its launch's first rank has advanced.
/// Throws Error(system) naming the rank if a thread cannot be made, before any call has started;
/// and if a thread fails during a call, whose ranks have then been told that it is over.
void run_launches(std::span<const Launch> launches);

}  // namespace megamoe::cpu
