#pragma once

#include <concepts>
#include <cstdint>

#include "numerics/hd.hpp"

/// The protocol's view of a machine. Every step is written once against an Environment and runs in
/// three worlds: CUDA, host threads, and the simulator. An Environment is one agent's handle: it
/// performs ordered accesses to words that live in ordinary memory, tells the time, and is told
/// when the agent polls.
namespace megamoe::protocol {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

enum class Order : unsigned char {
  relaxed,
  acquire,
  release,
  acq_rel,
  /// A store whose payload was complete before this kernel started: the start of a kernel makes
  /// everything before it in stream order visible to the whole system, so the store itself needs no
  /// fence. Relaxed in CUDA, release in the host world, and a release of the state at kernel start
  /// in the simulator.
  launch_release,
};

/// Who reads the payload in the end: agents of the same CTA, of the same GPU, or of any GPU.
enum class Scope : unsigned char { cta, gpu, sys };

template <class E>
concept Environment = requires(E env, u32* w32, const u32* r32, u64* w64, const u64* r64, u32 v32,
                               u64 v64) {
  { env.template load<Order::acquire, Scope::sys>(r64) } -> std::same_as<u64>;
  { env.template load<Order::acquire, Scope::gpu>(r32) } -> std::same_as<u32>;
  env.template store<Order::release, Scope::sys>(w64, v64);
  { env.template fetch_add<Order::acq_rel, Scope::gpu>(w32, v32) } -> std::same_as<u32>;
  { env.template fetch_add<Order::release, Scope::sys>(w64, v64) } -> std::same_as<u64>;
  /// True if *w32 was `v32` and is now the second value.
  {
    env.template compare_exchange<Order::acq_rel, Scope::gpu>(w32, v32, v32)
    } -> std::same_as<bool>;
  { env.now() } -> std::same_as<u64>;  // nanoseconds, any origin, monotonic
  env.pause();                         // between two polls of one wait
  /// Order accesses of the generic and of the async proxy to the same memory; nothing where there
  /// is one proxy.
  env.fence_proxy_generic_to_async();
  env.fence_proxy_async_to_generic();
  /// Polls between two looks at the abort word and the clock.
  { E::kPollsPerCheck } -> std::convertible_to<u32>;
};

}  // namespace megamoe::protocol
