#include "tests/device/hold_sms_kernel.hpp"

namespace megamoe {
namespace {

__global__ void hold(HeldWords* words, unsigned long long hold_ns) {
  if (threadIdx.x != 0) return;
  unsigned smid = 0;
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  *static_cast<volatile unsigned*>(&words->sm[blockIdx.x]) = smid + 1;
  __threadfence_system();
  const volatile unsigned* release = &words->release;
  do {
    __nanosleep(2000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < hold_ns && *release == 0);
  *static_cast<volatile unsigned*>(&words->ended[blockIdx.x]) = 1;
}

}  // namespace

cudaError_t launch_hold(HeldWords* words, int blocks, int shared_bytes, unsigned long long hold_ns,
                        cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  hold<<<blocks, 32, static_cast<std::size_t>(shared_bytes), stream>>>(words, hold_ns);
  return cudaGetLastError();
}

}  // namespace megamoe
