#include "cli/run_cuda.hpp"
#include "host/devices.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {

std::unique_ptr<SymmetricMemory> cuda_memory(const RunRequest& /*request*/, int /*ranks*/) {
  throw Error(ErrorCode::unsupported, "--backend cuda: " + find_devices().reason);
}

RunOutput call_cuda(const RunRequest& /*request*/, const RunCase& /*run*/,
                    std::unique_ptr<SymmetricMemory> /*memory*/, Io& /*io*/) {
  throw Error(ErrorCode::unsupported, "--backend cuda: " + find_devices().reason);
}

}  // namespace megamoe::cli
