#include "kernels/release.hpp"
#include "ptx/device.cuh"

namespace megamoe {
namespace {

__global__ void wait_for_release(ReleaseWords* words, int i, std::uint64_t deadline_ns) {
  const std::uint64_t deadline = ptx::globaltimer() + deadline_ns;
  const volatile std::uint32_t* const go = &words->go;
  *static_cast<volatile std::uint32_t*>(&words->arrived[i]) = 1;
  while (*go == 0) {
    if (ptx::globaltimer() > deadline) {
      *static_cast<volatile std::uint32_t*>(&words->expired[i]) = 1;
      __threadfence_system();  // before released, so that the host sees why
      break;
    }
  }
  *static_cast<volatile std::uint32_t*>(&words->released[i]) = 1;
}

}  // namespace

cudaError_t launch_release(ReleaseWords* words, int i, std::uint64_t deadline_ns,
                           cudaStream_t stream) {
  wait_for_release<<<1, 1, 0, stream>>>(words, i, deadline_ns);
  return cudaGetLastError();
}

}  // namespace megamoe
