#pragma once

#include "kernels/fused_params.hpp"
#include "kernels/instances.hpp"
#include "kernels/shared_plan.cuh"
#include "ptx/warp.cuh"
#include "roles/courier.cuh"
#include "roles/dispatch_only.cuh"
#include "roles/math.cuh"
#include "roles/plan.cuh"
#include "roles/publisher.cuh"
#include "roles/route.cuh"
#include "roles/scheduler.cuh"
#include "roles/sum_tickets.cuh"
#include "roles/warm_up.cuh"

// clang-format off
// The fused layer: one persistent CTA per SM. This file only composes; each role says in its own
// file what it waits for and what it publishes.
//
//   all warps          enter | route | plan
//   service warp 0     scheduler: claims tiles, fills the ring     | sum | leave
//   service warps 1,2  couriers: pull rows                         | sum | leave
//   service warp 3     publisher: releases finished tiles          | sum | leave
//   consumer warps     math: products, activation, stores          | sum | leave
// clang-format on

namespace megamoe {

/// What a CTA learns before it can do anything; by all threads.
MEGAMOE_DEVICE void enter_call(CtaState& state, const FusedParams& params) {
  using protocol::u32;
  const LocalHeader* own = params.rank.memory.local_header();
  if (threadIdx.x == 0) {
    DeviceEnv env;
    state.generation = own->generation;
    const std::uint64_t first_deadline_ns = own->first_deadline_ns;
    const std::uint64_t deadline_ns = own->deadline_ns;
    state.failed = 0;
    state.math_gave_up = protocol::Phase::none;
    for (u32& traced : state.traced) traced = 0;
    state.launch_ranks = params.launch_ranks;
    state.maps = &params.maps;
    state.entry =
        protocol::enter(env, params.rank.memory.local_header(), params.launch_ranks, gridDim.x);
    // By the epoch, which a replay reads too: a captured first call is the first one only once.
    const bool first = state.entry.epoch == protocol::kFirstEpoch;
    state.deadline_ns = first ? first_deadline_ns : deadline_ns;
  }
  const RankParams* rank = &params.rank;
  if (params.launch_ranks > 1) {
    __syncthreads();
    if (state.entry.rank > 0) rank = params.other_ranks + state.entry.rank - 1;
    if (threadIdx.x == 0 && state.entry.rank > 0)
      state.maps = params.other_maps + state.entry.rank - 1;
  }
  static_assert(sizeof(RankParams) % 8 == 0);
  const auto* from = reinterpret_cast<const std::uint64_t*>(rank);
  auto* to = reinterpret_cast<std::uint64_t*>(&state.rank);
  for (u32 i = threadIdx.x; i < sizeof(RankParams) / 8; i += blockDim.x) to[i] = from[i];
  __syncthreads();
}

/// The tail of every warp's work.
template <int kSlots, int kPieces>
MEGAMOE_DEVICE bool sum_tokens(const CtaState& state, DeviceCall& c, const Tracer& trace) {
  if (state.rank.snapshot.x != nullptr) return true;
  return Summer(state, c).template run<kSlots, kPieces>(trace);
}

template <class Plan>
MEGAMOE_DEVICE bool run_scheduler(const Plan& plan, CtaState& state, DeviceCall& c,
                                  const Tracer& trace) {
  const int lane = ptx::lane_id();
  protocol::u32 first = 0;
  if (lane == 0) first = protocol::claim(c, &c.m.words(c.parity())->gemm_ticket[0]);
  bool ok = true;
  if (state.rank.snapshot.x != nullptr) {
    ok = snapshot_blocks(state, c, first, static_cast<protocol::u32>(lane));
    RingPosition at;
    constexpr protocol::Phase kPhase = protocol::Phase::free_stage;
    if (lane == 0 && !load_end(plan.ring(), at, inner_patience(state, kPhase))) {
      protocol::raise_inner_fault(c, kPhase, c.g.rank, 0);
      ok = false;
    }
  } else {
    const auto ring = plan.ring();
    ok = Scheduler(ring, state, c, trace).run(first);
  }
  return __all_sync(0xFFFFFFFFU, ok) != 0;
}

template <class Plan>
MEGAMOE_DEVICE bool run_courier(const Plan& plan, CtaState& state, DeviceCall& c, int warp,
                                const Tracer& trace) {
  Courier courier(state, c, plan.pulled_rows(warp), trace);
  const protocol::u32 first = courier.claim_ticket();
  if constexpr (Plan::kBulkPull) {
    auto staging = plan.staging(warp);
    const ptx::CachePolicy policy = ptx::evict_first_policy();
    const auto copy = [&](const auto& rows, int count, const PullTarget& target) {
      return pull_rows_by_bulk(staging, rows, count, target, policy,
                               inner_patience(state, protocol::Phase::copies), ptx::lane_id());
    };
    return courier.run(first, copy, [&](int in_flight) {
      staging.drain(in_flight, inner_patience(state, protocol::Phase::free_stage));
    });
  } else {
    const auto copy = [](const auto& rows, int count, const PullTarget& target) {
      for (int i = 0; i < count; ++i) {
        pull_row_by_loads(rows(i).x, target.x + static_cast<std::int64_t>(i) * target.row_bytes,
                          target.row_bytes, ptx::lane_id());
      }
      pull_scales(rows, count, target, ptx::lane_id());
      return PulledSoFar{count, 0};
    };
    return courier.run(first, copy, [](int) {});
  }
}

/// The four warps that are not consumers.
template <class Plan>
MEGAMOE_DEVICE bool run_service(const Plan& plan, CtaState& state, int warp) {
  using protocol::Role;
  DeviceEnv env;
  DeviceCall c = make_call(env, state,
                           warp == 0   ? Role::scheduler
                           : warp == 3 ? Role::publisher
                                       : Role::courier);
  const Tracer trace(state);
  bool ok = true;
  if (warp == 0) {
    ok = run_scheduler(plan, state, c, trace);
  } else if (warp == 3) {
    if (ptx::lane_id() == 0)
      state.cleared = protocol::claim(c, &c.m.words(c.parity())->clear_ticket);
    __syncwarp();
    if (state.cleared == 0) protocol::clear_other_parity(c, ptx::lane_id(), 32);
    ok = publish_tiles(plan.done(), state, c, trace);
  } else {
    ok = run_courier(plan, state, c, warp - 1, trace);
  }
  constexpr int kPieces = Plan::kBulkPull ? 1 : 2;  // prefill leaves these warps few registers
  return ok && sum_tokens<4, kPieces>(state, c, trace);
}

template <class Plan>
MEGAMOE_DEVICE bool run_math(const Plan& plan, CtaState& state) {
  DeviceEnv env;
  DeviceCall c = make_call(env, state, protocol::Role::math);
  const Tracer trace(state);
  return consume_tiles(plan.ring(), plan.done(), state, plan.amax_words(), trace) &&
         sum_tokens<8, 2>(state, c, trace);
}

/// After all roles of the CTA have joined; by all threads.
MEGAMOE_DEVICE void leave_call(CtaState& state, const FusedParams& params) {
  using protocol::u32;
  DeviceEnv env;
  DeviceCall c = make_call(env, state, protocol::Role::none);
  const bool last = threadIdx.x == 0 && protocol::last_out(c);
  if (__syncthreads_or(last ? 1 : 0) == 0) return;
  std::int64_t* const stats = state.rank.recv_stats;
  if (stats != nullptr) {
    for (u32 e = threadIdx.x; e < c.g.experts_per_rank; e += blockDim.x) {
      stats[e] += state.plan.rows_of(e);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    protocol::finish(c, params.rank.memory.local_header(), state.launch_ranks);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    fused_moe(const __grid_constant__ FusedParams params) {
#if MEGAMOE_SM90A
  using Plan = SharedPlan<Shape>;
  extern __shared__ __align__(1024) std::byte shared[];
  const Plan plan(shared);
  CtaState& state = plan.state();
  const int thread = static_cast<int>(threadIdx.x);
  plan.init(thread);
  ptx::griddepcontrol_wait();
  enter_call(state, params);
  const Tracer trace(state);
  trace.mark_cta(TraceMark::entered);
  warm_up(state);

  {
    DeviceEnv env;
    DeviceCall c = make_call(env, state, protocol::Role::courier);
    Router<Shape::kThreads> router(state, c, reinterpret_cast<protocol::u32*>(shared),
                                   Plan::kScratchBytes);
    router.claim_ticket();
    if (thread == 32 && !protocol::may_start(c)) state.failed = 1;
    __syncthreads();
    if (state.failed != 0 || !router.run()) return;
    trace.mark_cta(TraceMark::routed);
    if (!make_cta_plan<Shape::kThreads>(state, c)) return;
    trace.mark_cta(TraceMark::planned);
  }
  // The router's counters lay where the ring is.
  ptx::fence_proxy_async();
  __syncthreads();

  bool ok = true;
  const int warpgroup = static_cast<int>(ptx::warp_uniform(threadIdx.x / 128));
  if (warpgroup == Shape::kWarpgroups) {
    ptx::setmaxnreg_dec<Shape::kServiceRegisters>();
    ok = run_service(plan, state, static_cast<int>(threadIdx.x / 32) % 4);
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    ok = run_math(plan, state);
    if (!ok) raise_math_fault(state);
  }
  if (__syncthreads_or(!ok) != 0) return;
  leave_call(state, params);
  trace.mark_cta(TraceMark::left);
#endif
}

template <class Shape>
FusedInstance fused_instance(const char* name) {
  return {.name = name,
          .family = Shape::kFamily,
          .block_rows = Shape::kTokens,
          .threads = Shape::kThreads,
          .shared_bytes = SharedPlan<Shape>::kBytes,
          .kernel = reinterpret_cast<const void*>(fused_moe<Shape>)};
}

}  // namespace megamoe
