#pragma once

#include <optional>

namespace megamoe {

/// The integer in an environment variable; nothing if it is not set or empty. Throws
/// Error(invalid_argument) naming variable and value if it is no integer of low..high.
std::optional<int> environment_integer(const char* variable, int low, int high);

/// True if the variable is set, not empty and not "0".
bool environment_flag(const char* variable);

/// The SMs to leave free that the environment asks for, by MEGAMOE_RESERVED_SMS, else by
/// SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS.
std::optional<int> environment_reserved_sms();

/// Ranks that may have the same GPU: MEGAMOE_RANKS_PER_GPU, 1 unless set.
int environment_ranks_per_gpu();

}  // namespace megamoe
