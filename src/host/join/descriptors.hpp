#pragma once

#include <vector>

#include "host/join/wire.hpp"
#include "megamoe/symmetric_memory.hpp"

namespace megamoe::join {

/// Collective among processes of one machine: gives every process a descriptor of the open file
/// that each rank brings; that of this rank is not open. All throw the same Error where one fails.
std::vector<File> exchange_files(const AllGather& gather, int rank, int file,
                                 std::chrono::nanoseconds deadline);

}  // namespace megamoe::join
