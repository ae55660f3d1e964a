#pragma once

#include "ptx/warp.cuh"
#include "roles/cta.cuh"
#include "roles/trace_events.hpp"

// In-kernel timestamps: each warp writes its own list; off unless the launch brings a buffer.

namespace megamoe {

/// A warp's hand on its list. Positions are in shared memory, so that a role spends no register on
/// it.
class Tracer {
 public:
  MEGAMOE_DEVICE Tracer(CtaState& state, std::uint32_t warp) : state_(state), warp_(warp) {}

  /// By one lane or more of the warp; lane 0 writes.
  MEGAMOE_DEVICE void mark(TraceMark what, std::uint32_t index = 0) const {
    const TraceBuffer& buffer = state_.rank.trace;
    if (buffer.events == nullptr || ptx::lane_id() != 0) return;
    const std::uint32_t position = state_.traced[warp_];
    if (position == buffer.capacity) return;
    state_.traced[warp_] = position + 1;
    const std::uint32_t list = state_.entry.cta * buffer.warps + warp_;
    buffer.events[static_cast<std::int64_t>(list) * buffer.capacity + position] = {
        .ns = ptx::globaltimer(), .what = what, .index = index};
  }

 private:
  CtaState& state_;
  std::uint32_t warp_;
};

}  // namespace megamoe
