// The owners of what the CUDA runtime hands out give it back when their construction fails half
// way. The runtime is replaced by functions that count, of which one may fail.
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "host/cuda/runtime.hpp"

namespace {

/// The name of the function that fails, and what is held.
std::string failing;
int held = 0;

cudaError_t result(const char* name) { return failing == name ? cudaErrorUnknown : cudaSuccess; }

cudaError_t allocate(const char* name, void** memory, std::size_t bytes) {
  if (result(name) != cudaSuccess) return cudaErrorMemoryAllocation;
  *memory = std::malloc(bytes);
  ++held;
  return cudaSuccess;
}

cudaError_t release(void* memory) {
  if (memory != nullptr) --held;
  std::free(memory);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate("cudaMalloc", memory, bytes);
}
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return allocate("cudaHostAlloc", memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned /*flags*/) {
  *device = host;
  return result("cudaHostGetDevicePointer");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  if (result("cudaStreamCreate") != cudaSuccess) return cudaErrorUnknown;
  *stream = nullptr;
  ++held;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) {
  --held;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return result("cudaStreamSynchronize");
}
cudaError_t cudaMemsetAsync(void* /*to*/, int /*byte*/, std::size_t /*bytes*/,
                            cudaStream_t /*stream*/) {
  return result("cudaMemset");
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "made to fail"; }
const char* cudaGetErrorName(cudaError_t /*error*/) { return "cudaErrorUnknown"; }

}  // extern "C"

namespace megamoe::cuda {
namespace {

TEST(CudaOwners, HoldTheirMemoryAndGiveItBack) {
  failing.clear();
  {
    const DeviceBuffer device(0, 100);
    const MappedBuffer mapped(100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.data()) % DeviceBuffer::kAlignment, 0U);
    EXPECT_NE(mapped.device(), nullptr);
    EXPECT_EQ(held, 2);
  }
  EXPECT_EQ(held, 0);
}

TEST(CudaOwners, ADeviceBufferThatFailsHalfWayHoldsNothing) {
  for (const char* step :
       {"cudaMalloc", "cudaStreamCreate", "cudaMemset", "cudaStreamSynchronize"}) {
    failing = step;
    EXPECT_THROW(DeviceBuffer(0, 100), Error) << step;
    EXPECT_EQ(held, 0) << step;
  }
}

TEST(CudaOwners, AMappedBufferThatFailsHalfWayHoldsNothing) {
  for (const char* step : {"cudaHostAlloc", "cudaHostGetDevicePointer"}) {
    failing = step;
    EXPECT_THROW(MappedBuffer(100), Error) << step;
    EXPECT_EQ(held, 0) << step;
  }
}

}  // namespace
}  // namespace megamoe::cuda
