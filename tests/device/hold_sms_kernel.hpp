#pragma once

#include <cuda_runtime_api.h>

namespace megamoe {

inline constexpr int kMostHeld = 256;

/// Shared by the host and the kernel that holds SMs, in mapped host memory. Each word has one
/// writer.
struct HeldWords {
  unsigned sm[kMostHeld];     ///< 1 + %smid of the block
  unsigned ended[kMostHeld];  ///< by the block, as it ends
  unsigned release;           ///< by the host
};

/// Starts `blocks` blocks that end after `hold_ns`, or once released.
cudaError_t launch_hold(HeldWords* words, int blocks, int shared_bytes, unsigned long long hold_ns,
                        cudaStream_t stream);

}  // namespace megamoe
