#pragma once

#include "protocol/route.hpp"
#include "roles/cta.cuh"

// Plan: all threads of a CTA, between routing and the roles. Every CTA computes its own.
// Waits for: the counts of all ranks.
// Publishes: nothing outside the CTA.

namespace megamoe {

/// Inclusive prefix sum over `count` words of shared memory, by one warp; f(i) gives word i.
template <class F>
MEGAMOE_DEVICE void warp_prefix_sum(protocol::u32* to, protocol::u32 count, protocol::u32 lane,
                                    F f) {
  protocol::u32 carry = 0;
  for (protocol::u32 base = 0; base < count; base += 32) {
    const protocol::u32 i = base + lane;
    protocol::u32 sum = i < count ? f(i) : 0;
#pragma unroll
    for (protocol::u32 step = 1; step < 32; step *= 2) {
      const protocol::u32 below = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (lane >= step) sum += below;
    }
    sum += carry;
    if (i < count) to[i] = sum;
    carry = __shfl_sync(0xFFFFFFFFU, sum, 31);
  }
}

/// False in all threads: aborted.
template <int kThreads>
MEGAMOE_DEVICE bool make_cta_plan(CtaState& state, DeviceCall& c) {
  using protocol::u32;
  const u32 thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const protocol::Geometry& g = c.g;
  // rows_of[] lies in chunk_end[], which is written last.
  u32* const rows_of = state.chunk_end;
  for (u32 e = thread; e < g.local_experts; e += kThreads) rows_of[e] = 0;
  if (thread == 0) {
    state.plan = {.experts = g.local_experts,
                  .block_rows = g.block_rows,
                  .pull_rows = g.pull_rows,
                  .first_block = 0,
                  .row_end = state.row_end,
                  .block_end = state.block_end,
                  .chunk_end = state.chunk_end};
  }
  __syncthreads();
  bool in = true;
  for (u32 word = thread; in && word < g.ranks * g.local_experts; word += kThreads) {
    const u32 src = word / g.local_experts, e = word % g.local_experts;
    u32 end = 0;
    in = protocol::read_count(c, 0, src, e, end);
    if (word < kKeptEnds) state.ends[word] = end;
    // An expert's rows of a source are its end less the end before it.
    if (end != 0) {
      atomicAdd(&rows_of[e], end);
      if (e + 1 < g.local_experts) atomicAdd(&rows_of[e + 1], 0U - end);
    }
  }
  if (!in) state.failed = 1;
  if (__syncthreads_or(!in)) return false;
  if (warp == 0) {
    warp_prefix_sum(state.row_end, g.local_experts, lane, [&](u32 e) { return rows_of[e]; });
  } else if (warp == 1) {
    warp_prefix_sum(state.block_end, g.local_experts, lane,
                    [&](u32 e) { return protocol::div_up(rows_of[e], g.block_rows); });
  }
  __syncthreads();
  if (warp == 0) {
    warp_prefix_sum(state.chunk_end, g.local_experts, lane,
                    [&](u32 e) { return protocol::div_up(rows_of[e], g.pull_rows); });
  }
  __syncthreads();
  return true;
}

}  // namespace megamoe
