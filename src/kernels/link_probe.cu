#include <cuda/atomic>

#include "kernels/link_probe.hpp"
#include "ptx/device.cuh"
#include "ptx/memory.cuh"

namespace megamoe {
namespace {

using SystemFlag = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system>;

/// True when the flag says `round`; false when the deadline came first.
__device__ bool wait_for_round(std::uint32_t* flag, std::uint32_t round,
                               std::uint64_t deadline_ns) {
  const std::uint64_t deadline = ptx::globaltimer() + deadline_ns;
  // [A:link_probe] the partner's flag
  while (SystemFlag(*flag).load(cuda::std::memory_order_acquire) != round) {
    if (ptx::globaltimer() > deadline) return false;
  }
  return true;
}

__device__ void tell_round(std::uint32_t* flag, std::uint32_t round) {
  // [R:link_probe] this side's flag
  SystemFlag(*flag).store(round, cuda::std::memory_order_release);
}

__global__ void ping(const PingParams p) {
  const std::uint64_t begin = ptx::globaltimer();
  std::uint32_t round = 0;
  while (round < p.rounds) {
    if (p.leader) tell_round(p.peer_flag, round + 1);
    if (!wait_for_round(p.own_flag, round + 1, p.deadline_ns)) break;
    if (!p.leader) tell_round(p.peer_flag, round + 1);
    ++round;
  }
  p.result->ns = ptx::globaltimer() - begin;
  p.result->rounds = round;
}

__global__ void pull(std::byte* to, const std::byte* from, std::size_t granules) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  constexpr int kAtOnce = 4;
  for (; i + (kAtOnce - 1) * step < granules; i += kAtOnce * step) {
    uint4 values[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) values[k] = ptx::load_16(from + (i + k * step) * 16);
    for (int k = 0; k < kAtOnce; ++k) ptx::store_16(to + (i + k * step) * 16, values[k]);
  }
  for (; i < granules; i += step) ptx::store_16(to + i * 16, ptx::load_16(from + i * 16));
}

}  // namespace

cudaError_t launch_ping(const PingParams& params, cudaStream_t stream) {
  ping<<<1, 1, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_pull(void* to, const void* from, std::size_t bytes, int num_sms,
                        cudaStream_t stream) {
  pull<<<static_cast<unsigned>(num_sms), 1024, 0, stream>>>(
      static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes / 16);
  return cudaGetLastError();
}

}  // namespace megamoe
