#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance prefill_precise() { return gemm_instance<PrefillShape, false>("prefill precise"); }
}  // namespace megamoe::bench
