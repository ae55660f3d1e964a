#pragma once

#include <string>

#include "cli/run_request.hpp"
#include "host/devices.hpp"
#include "megamoe/problem.hpp"

namespace megamoe::cli {

/// Where the request runs: what --backend says, for auto the GPUs if there are enough of them and
/// they run this problem, else the CPU. Throws Error(unsupported) when --backend cuda cannot be
/// had, with the reason.
Backend choose_backend(const RunRequest& request, const Problem& problem);

/// Why these are too few GPUs for the problem's ranks, or for any; empty if they are enough.
std::string why_too_few_gpus(const Devices& found, bool virtual_ranks, const Problem& problem);

/// The GPU of this process among those that it sees, by its rank on this machine. Throws
/// Error(unsupported) if it has none.
int device_of_launched(const LauncherRank& rank, const Devices& found);

}  // namespace megamoe::cli
