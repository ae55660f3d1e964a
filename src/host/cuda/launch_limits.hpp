#pragma once

#include "host/backend.hpp"
#include "kernels/instances.hpp"

namespace megamoe::cuda {

/// Throws Error(unsupported) if the CUDA kernels cannot run the problem on this device, naming the
/// value and what runs.
void check_problem(const Problem& problem, int device);

/// The kernel of a call. Throws Error if there is none for its configuration, or its weights ask
/// for what the kernels do not do.
const FusedInstance& instance_for(const PreparedCall& call);

/// CTAs of a launch for `launch_ranks` ranks on a device of this architecture with `physical` SMs.
/// `default_reserve`: where the options name no reserve. Throws Error if too few SMs for the ranks
/// are left.
int grid_for(const ForwardOptions& options, std::optional<int> default_reserve, int arch,
             int physical, int launch_ranks);

}  // namespace megamoe::cuda
