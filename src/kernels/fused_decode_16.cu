#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
FusedInstance fused_decode_16() { return fused_instance<DecodeShape<16, 2>>("decode_16"); }
}  // namespace megamoe
