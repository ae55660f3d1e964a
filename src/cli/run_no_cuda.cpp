#include "cli/run_cuda.hpp"
#include "host/devices.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {

RunOutput call_cuda(const RunRequest& /*request*/, const RunCase& /*run*/, Io& /*io*/) {
  throw Error(ErrorCode::unsupported, "--backend cuda: " + find_devices().reason);
}

}  // namespace megamoe::cli
