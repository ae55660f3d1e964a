#pragma once

#include <string>

namespace megamoe {

/// The GPUs that this process can use, and why they are not more.
struct Devices {
  int count = 0;
  std::string reason;  ///< where count is 0
};

/// Never throws; 0 devices in a build without CUDA.
Devices find_devices();

}  // namespace megamoe
