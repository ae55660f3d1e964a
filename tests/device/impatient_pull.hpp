#pragma once

#include <cuda_runtime_api.h>

namespace megamoe {

inline constexpr int kImpatientSlots = 5, kImpatientPieceBytes = 2048;
inline constexpr int kImpatientRows = 4;

/// What one warp's pull left behind that gave up on purpose.
struct ImpatientPull {
  int rows;                                                       ///< written, as the pull says
  int in_flight;                                                  ///< loads that it left under way
  unsigned char staging[kImpatientSlots * kImpatientPieceBytes];  ///< after the drain
};

/// Starts one warp that pulls kImpatientRows rows of `row_bytes` bytes from `from` to `to` twice
/// through one staging buffer: the first pull gives up at piece `give_up_at` and is drained, with
/// `*left` as the result; the second goes through, to `to_again`. All on the device; scales [rows]
/// [row_bytes / 128] likewise, the same for both pulls.
cudaError_t launch_impatient_pull(const void* from, const float* from_scales, void* to,
                                  void* to_again, float* to_scales, int row_bytes, int give_up_at,
                                  ImpatientPull* left);

}  // namespace megamoe
