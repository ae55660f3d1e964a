#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n8_w2() { return gemm_instance<DecodeShape<8, 2>, false>("decode n8 w2"); }
}  // namespace megamoe::bench
