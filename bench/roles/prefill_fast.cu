#include "bench/roles/gemm_kernel.cuh"

namespace megamoe::bench {
GemmInstance prefill_fast() { return gemm_instance<PrefillShape, true>("prefill fast"); }
}  // namespace megamoe::bench
