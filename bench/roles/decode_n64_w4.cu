#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance decode_n64_w4() { return gemm_instance<DecodeShape<64, 4>, false>("decode n64 w4"); }
}  // namespace megamoe::bench
