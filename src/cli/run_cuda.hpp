#pragma once

#include "cli/run_call.hpp"

namespace megamoe::cli {

/// The GPUs that the ranks of this process run on, by peer access or as virtual ranks on one.
std::unique_ptr<SymmetricMemory> cuda_memory(const RunRequest& request, int ranks);

/// As call_group, on the GPUs of the memory, with weights and tokens copied there.
RunOutput call_cuda(const RunRequest& request, const RunCase& run,
                    std::unique_ptr<SymmetricMemory> memory, Io& io);

}  // namespace megamoe::cli
