#pragma once

#include "kernels/instances.hpp"

// One function per instance of the fused kernel, each in its own .cu file.

namespace megamoe {

FusedInstance fused_decode_8();
FusedInstance fused_decode_16();
FusedInstance fused_decode_32();
FusedInstance fused_decode_64();
FusedInstance fused_prefill_128();

}  // namespace megamoe
