#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
FusedInstance fused_decode_8() { return fused_instance<DecodeShape<8, 2>>("decode_8"); }
}  // namespace megamoe
