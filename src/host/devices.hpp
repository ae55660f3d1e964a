#pragma once

#include <string>
#include <vector>

namespace megamoe {

/// The GPUs that this process can use.
struct Devices {
  std::vector<int> usable;  ///< those that the kernels run on
  std::string reason;       ///< why there are no more
};

/// Never throws; no device in a build without CUDA.
Devices find_devices();

}  // namespace megamoe
