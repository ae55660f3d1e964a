#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "megamoe/error.hpp"

// Owners of what the CUDA runtime hands out, and its errors as exceptions.

namespace megamoe::cuda {

/// Throws Error(system) with the runtime's words. `what` names the attempt.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw Error(ErrorCode::system, fmt::format("{}: {} ({})", what, cudaGetErrorString(error),
                                               cudaGetErrorName(error)));
  }
}

/// Makes a device current for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ == device) {
      previous_ = -1;
    } else {
      check(cudaSetDevice(device), "cudaSetDevice");
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }

 private:
  int previous_ = -1;
};

/// Lets this thread allocate, copy and wait on its own streams while another stream is captured.
class BesideCapture {
 public:
  BesideCapture() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "stream capture mode"); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;
  ~BesideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A stream that waits for no other, and that no other waits for.
class PrivateStream {
 public:
  PrivateStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;
  ~PrivateStream() { cudaStreamDestroy(stream_); }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Zeroed memory of one device, aligned to 1024 bytes.
class DeviceBuffer {
 public:
  static constexpr std::size_t kAlignment = 1024;

  DeviceBuffer() = default;
  /// Delegates, so that the destructor frees the memory when a later step throws.
  DeviceBuffer(int device, std::size_t bytes) : DeviceBuffer() {
    const DeviceGuard guard(device);
    const cudaError_t error = cudaMalloc(&allocation_, bytes + kAlignment);
    if (error != cudaSuccess) {
      cudaGetLastError();  // out of memory is no reason to fail later calls
      throw Error(ErrorCode::system, fmt::format("cannot allocate {} bytes on device {}: {}", bytes,
                                                 device, cudaGetErrorString(error)));
    }
    const PrivateStream stream;
    check(cudaMemsetAsync(allocation_, 0, bytes + kAlignment, stream.get()), "cudaMemset");
    check(cudaStreamSynchronize(stream.get()), "cudaMemset");
    const auto address = reinterpret_cast<std::uintptr_t>(allocation_);
    data_ = static_cast<std::byte*>(allocation_) + (kAlignment - address % kAlignment) % kAlignment;
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : allocation_(std::exchange(other.allocation_, nullptr)), data_(other.data_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(allocation_); }

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  void* allocation_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Zeroed, pinned host memory that devices can address.
class MappedBuffer {
 public:
  /// Delegates, so that the destructor frees the memory when a later step throws.
  explicit MappedBuffer(std::size_t bytes) : MappedBuffer() {
    check(cudaHostAlloc(&host_, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
    std::memset(host_, 0, bytes);
    check(cudaHostGetDevicePointer(&device_, host_, 0), "cudaHostGetDevicePointer");
  }
  MappedBuffer(const MappedBuffer&) = delete;
  MappedBuffer& operator=(const MappedBuffer&) = delete;
  ~MappedBuffer() { cudaFreeHost(host_); }

  [[nodiscard]] std::byte* host() const { return static_cast<std::byte*>(host_); }
  [[nodiscard]] std::byte* device() const { return static_cast<std::byte*>(device_); }

 private:
  MappedBuffer() = default;

  void* host_ = nullptr;
  void* device_ = nullptr;
};

inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace megamoe::cuda
