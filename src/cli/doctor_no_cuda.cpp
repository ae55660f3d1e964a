// What a build without CUDA can say of GPUs.
#include "cli/doctor.hpp"

namespace megamoe::cli {

void examine_gpus(MachineFacts& facts, bool /*measure*/) {
  facts.cuda_build = false;
  facts.gpu_reason = "this build has no CUDA kernels";
}

}  // namespace megamoe::cli
