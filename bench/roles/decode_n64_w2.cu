#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n64_w2() { return gemm_instance<DecodeShape<64, 2>, false>("decode n64 w2"); }
}  // namespace megamoe::bench
