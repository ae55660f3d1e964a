#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n32_w4() { return gemm_instance<DecodeShape<32, 4>, false>("decode n32 w4"); }
}  // namespace megamoe::bench
