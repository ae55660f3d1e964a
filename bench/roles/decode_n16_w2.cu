#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n16_w2() { return gemm_instance<DecodeShape<16, 2>, false>("decode n16 w2"); }
}  // namespace megamoe::bench
