#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
FusedInstance fused_decode_32() { return fused_instance<DecodeShape<32, 2>>("decode_32"); }
}  // namespace megamoe
