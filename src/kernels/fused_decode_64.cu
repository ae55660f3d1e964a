#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
FusedInstance fused_decode_64() { return fused_instance<DecodeShape<64, 2>>("decode_64"); }
}  // namespace megamoe
