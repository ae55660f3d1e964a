#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n8_w4() { return gemm_instance<DecodeShape<8, 4>, false>("decode n8 w4"); }
}  // namespace megamoe::bench
