#pragma once

#include "roles/rank_params.hpp"

// What the host hands to one launch of the fused kernel.

namespace megamoe {

/// Ranks that one launch may serve.
inline constexpr int kMaxLaunchRanks = 8;

/// The kernel's one parameter. Rank 0 of the launch travels in it; further (virtual) ranks lie in
/// device memory.
struct FusedParams {
  RankMaps maps;
  RankParams rank;
  const RankMaps* other_maps;     ///< [launch_ranks - 1], device memory
  const RankParams* other_ranks;  ///< [launch_ranks - 1], device memory
  protocol::u32 launch_ranks;     ///< 1 .. kMaxLaunchRanks
};

}  // namespace megamoe
