#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "megamoe/error.hpp"

// What the measuring programs share: checked calls, owned device memory, timing.

namespace megamoe::bench {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw Error(ErrorCode::system, std::string(what) + ": " + cudaGetErrorString(error));
  }
}

/// Device memory of `count` values, freed with the object.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, bytes() + 16), "cudaMalloc");
    pointer_ = static_cast<T*>(pointer);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(pointer_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  DeviceArray(DeviceArray&& other) noexcept : pointer_(other.pointer_), count_(other.count_) {
    other.pointer_ = nullptr;
    other.count_ = 0;
  }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(pointer_, other.pointer_);
    std::swap(count_, other.count_);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(pointer_); }

  [[nodiscard]] T* get() const { return pointer_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }
  void fill_bytes(int byte) { check(cudaMemset(pointer_, byte, bytes()), "cudaMemset"); }
  [[nodiscard]] std::vector<T> to_host() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), pointer_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  T* pointer_ = nullptr;
  std::size_t count_ = 0;
};

/// Median microseconds of one launch: graphs of `per_graph` launches, `repeats` of them after
/// `warm_ups`. launch(stream, i) starts launch i of a graph.
inline double time_launches(const std::function<void(cudaStream_t, int)>& launch, int per_graph,
                            int repeats, int warm_ups = 1) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  for (int i = 0; i < per_graph; ++i) launch(stream, i);
  check(cudaStreamEndCapture(stream, &graph), "end capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> times;
  for (int i = 0; i < warm_ups + repeats; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaStreamSynchronize(stream), "timed launches");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= warm_ups) times.push_back(milliseconds * 1e3 / per_graph);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace megamoe::bench
