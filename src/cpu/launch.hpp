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
};

/// Runs one launch to its end: `grid` CTAs of two threads each, courier and GEMM agent. Several
/// ranks in one launch are virtual ranks: each CTA learns at its start which one it serves. Whether
/// the call succeeded is in memory: the epoch of the first rank has advanced.
void run_launch(std::span<const RankLaunch> ranks, const LaunchOptions& options);

}  // namespace megamoe::cpu
