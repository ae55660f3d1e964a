// The instance for blocks of 16 rows with a race between warps in shared memory: each reads the
// tokens' largest magnitudes without waiting for the others'. Shows whether a race checker finds
// such a thing in this kernel.
#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
namespace {

struct RacyDecode : DecodeShape<16, 2> {};

}  // namespace

template <>
MEGAMOE_DEVICE const std::uint32_t* SharedAmax<RacyDecode>::reduce(float (&amax)[kValues],
                                                                   const ConsumerThread& thread,
                                                                   int /*barrier_id*/) {
  std::uint32_t* const now = words + set * kTokens;
  set = set == 2 ? 0 : set + 1;
  const int index = (thread.warpgroup * 4 + thread.warp) * 32 + thread.lane();
  if (index < kTokens) words[set * kTokens + index] = 0;
  const SpreadMax<kValues> spread(amax, thread.lane());
  if (!spread.duplicate) {
#pragma unroll
    for (int i = 0; i < SpreadMax<kValues>::kLeft; ++i) {
      atomicMax(&now[token(spread.first + i, thread.q())], __float_as_uint(amax[i]));
    }
  }
  __syncwarp();
  return now;
}

FusedInstance fused_decode_16() { return fused_instance<RacyDecode>("decode_16, with a race"); }

}  // namespace megamoe
