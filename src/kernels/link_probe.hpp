#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

// What a link between two GPUs does, measured the way the layer uses it.

namespace megamoe {

/// What one side of a ping-pong saw; in mapped host memory, zeroed by the host.
struct PingResult {
  std::uint64_t ns;      ///< of all rounds
  std::uint32_t rounds;  ///< finished; fewer than asked for: the deadline came first
};

/// One thread that exchanges flags with its partner on another GPU: the leader writes round i to
/// `peer_flag` and waits for it in `own_flag`, the follower the other way round. Both flags are 0
/// before. Each wait ends after `deadline_ns`.
struct PingParams {
  std::uint32_t* own_flag;   ///< in this GPU's memory, written by the partner
  std::uint32_t* peer_flag;  ///< in the partner's memory
  PingResult* result;
  std::uint32_t rounds;
  bool leader;
  std::uint64_t deadline_ns;
};
cudaError_t launch_ping(const PingParams& params, cudaStream_t stream);

/// Reads `bytes`, a multiple of 16, with 16-byte loads on all of `num_sms` SMs and writes them to
/// this GPU's memory, as couriers pull rows.
cudaError_t launch_pull(void* to, const void* from, std::size_t bytes, int num_sms,
                        cudaStream_t stream);

}  // namespace megamoe
