#pragma once

#include <string>

#include "cli/run_request.hpp"
#include "megamoe/problem.hpp"

namespace megamoe::cli {

/// Where the request runs: what --backend says, for auto the GPUs if there are enough of them and
/// they run this problem, else the CPU. Throws Error(unsupported) when --backend cuda cannot be
/// had, with the reason.
Backend choose_backend(const RunRequest& request, const Problem& problem);

/// Why this machine has too few GPUs for the problem's ranks, or for any; empty if it has enough.
std::string why_too_few_gpus(bool virtual_ranks, const Problem& problem);

}  // namespace megamoe::cli
