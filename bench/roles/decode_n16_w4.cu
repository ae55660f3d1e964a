#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n16_w4() { return gemm_instance<DecodeShape<16, 4>, false>("decode n16 w4"); }
}  // namespace megamoe::bench
