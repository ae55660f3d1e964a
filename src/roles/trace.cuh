#pragma once

#include "ptx/warp.cuh"
#include "roles/cta.cuh"
#include "roles/trace_events.hpp"

// In-kernel timestamps: each warp writes its own list; off unless the launch brings a buffer.

namespace megamoe {

/// Positions are in shared memory, so that a role spends no register on its list.
class Tracer {
 public:
  MEGAMOE_DEVICE explicit Tracer(CtaState& state) : state_(state) {}

  /// In this warp's list, by one lane or more of it; lane 0 writes.
  MEGAMOE_DEVICE void mark(TraceMark what, std::uint32_t index = 0) const {
    if (state_.rank.trace.events == nullptr) return;
    if (ptx::lane_id() == 0) append(threadIdx.x / 32, what, index);
  }
  /// In the CTA's list, by all threads; thread 0 writes.
  MEGAMOE_DEVICE void mark_cta(TraceMark what) const {
    if (state_.rank.trace.events == nullptr) return;
    if (threadIdx.x == 0) append(blockDim.x / 32, what, 0);
  }

 private:
  MEGAMOE_DEVICE void append(std::uint32_t list, TraceMark what, std::uint32_t index) const {
    const TraceBuffer& buffer = state_.rank.trace;
    const std::uint32_t position = state_.traced[list];
    if (position == buffer.capacity) return;
    state_.traced[list] = position + 1;
    const std::int64_t first = static_cast<std::int64_t>(state_.entry.cta * buffer.lists + list);
    buffer.events[first * buffer.capacity + position] = {
        .ns = ptx::globaltimer(), .what = what, .index = index};
  }

  CtaState& state_;
};

}  // namespace megamoe
