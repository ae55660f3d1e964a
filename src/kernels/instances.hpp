#pragma once

#include <span>

#include "config/kernel_config.hpp"

// The table of compiled instances of the fused kernel, one .cu file each.

namespace megamoe {

/// One compiled kernel. Its only parameter is a FusedParams by value.
struct FusedInstance {
  const char* name;
  Family family;
  int block_rows;
  int threads;       ///< of a CTA; one CTA per SM
  int shared_bytes;  ///< dynamic shared memory
  const void* kernel;
};

/// All instances, smallest block first.
std::span<const FusedInstance> fused_instances();

/// The instance for blocks of `block_rows` rows, or null.
const FusedInstance* find_fused_instance(int block_rows);

}  // namespace megamoe
