#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
FusedInstance fused_prefill_128() { return fused_instance<PrefillShape>("prefill_128"); }
}  // namespace megamoe
