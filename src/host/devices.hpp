#pragma once

#include <string>
#include <vector>

#include "megamoe/symmetric_memory.hpp"

namespace megamoe {

/// The GPUs that this process can use.
struct Devices {
  /// Those that the kernels run on, once for each rank that may have them (MEGAMOE_RANKS_PER_GPU).
  std::vector<int> usable;
  std::string reason;  ///< why there are no more
};

/// Never throws; no device in a build without CUDA. It starts the CUDA driver: processes that are
/// forked afterwards cannot use CUDA.
Devices find_devices();

/// The same, found by a process of its own: this one may fork afterwards.
Devices find_devices_apart();

/// The device of this index, -1: the current one. Throws Error(invalid_argument) if there is none
/// of this index, Error(unsupported) where there is no GPU. `who` asks.
int device_for(const char* who, int device);

/// Why device a of this process cannot use device b's memory as the protocol does, or an empty
/// string.
std::string why_unreachable(int a, int b);

/// Collective among processes with a GPU each: throws the same Error on all ranks if more have the
/// same GPU than may (MEGAMOE_RANKS_PER_GPU), or a pair cannot reach each other or has no native
/// atomics over its link, naming all such pairs. Where a process does not see the GPU of another,
/// the other's word decides; where neither sees the other's, mapping the memory does.
void check_reach(const AllGather& gather, int device);

}  // namespace megamoe
