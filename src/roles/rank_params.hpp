#pragma once

#include <cstdint>

#include <cuda.h>

#include "protocol/fault.hpp"
#include "protocol/geometry.hpp"
#include "protocol/memory.hpp"
#include "protocol/snapshot.hpp"
#include "roles/trace_events.hpp"

// What the host hands to the roles of one rank.

namespace megamoe {

/// Descriptors of one rank's operands. Weights: e4m3 [experts, rows, K], box {128, 256, 1}; rings:
/// e4m3 [ring rows, K], box {128, block_rows}. Without shared experts their maps repeat the routed
/// ones and are never used.
struct RankMaps {
  CUtensorMap w1, w2;                ///< routed experts
  CUtensorMap shared_w1, shared_w2;  ///< shared experts
  CUtensorMap pool;                  ///< pool ring, K = hidden
  CUtensorMap act;                   ///< act ring, K = intermediate
};

/// One set of experts' weights beside their descriptors. Codes: e4m3 [experts][rows][K]. FP32
/// scales: [experts][rows / 128][K / 128]; those of w1 hold the gate's rows first, then the up
/// projection's.
struct WeightPointers {
  const std::byte* w1;
  const std::byte* w2;
  const float* w1_scales;
  const float* w2_scales;
};

/// One rank's part of a launch, besides its descriptors.
struct RankParams {
  protocol::Geometry geometry;
  protocol::Memory memory;
  WeightPointers routed;
  WeightPointers shared;
  std::uint16_t* y;               ///< BF16 [num_tokens][hidden]
  std::int64_t* recv_stats;       ///< [experts per rank] added to, or null
  protocol::FaultRecord* record;  ///< device address of host-visible memory
  DispatchSnapshot snapshot;
  TraceBuffer trace;
  protocol::u32 num_tokens;
  float clamp;  ///< of swiglu; may be infinite
};

}  // namespace megamoe
