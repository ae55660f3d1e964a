#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n32_w2() { return gemm_instance<DecodeShape<32, 2>, false>("decode n32 w2"); }
}  // namespace megamoe::bench
