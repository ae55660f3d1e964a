#pragma once

#include "cli/run_call.hpp"

namespace megamoe::cli {

/// The run on GPUs of this process: as call_layer, with weights and tokens copied there.
RunOutput call_cuda(const RunRequest& request, const RunCase& run, Io& io);

}  // namespace megamoe::cli
