#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

// Releases several GPUs together: on each, one thread waits for a word that the host writes.

namespace megamoe {

inline constexpr int kMaxReleased = 72;

/// In mapped host memory, zeroed by the host before each round. Every word has one writer.
struct ReleaseWords {
  std::uint32_t go;                      ///< by the host: all may go
  std::uint32_t arrived[kMaxReleased];   ///< by waiter i: it waits
  std::uint32_t released[kMaxReleased];  ///< by waiter i: it saw `go`, or gave up
  std::uint32_t expired[kMaxReleased];   ///< by waiter i: it gave up
};

/// Starts waiter `i`, which ends when it sees `go`, or after `deadline_ns`.
cudaError_t launch_release(ReleaseWords* words, int i, std::uint64_t deadline_ns,
                           cudaStream_t stream);

}  // namespace megamoe
