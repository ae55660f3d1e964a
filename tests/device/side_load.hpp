#pragma once

#include <array>
#include <random>

#include "numerics/bf16.hpp"
#include "tests/device/gpu_memory.hpp"
#include "tests/device/side_load_kernels.hpp"

namespace megamoe {

/// Keeps a stream of its own busy on one device, with kernels like those of attention and of dense
/// layers in turn.
class SideLoad {
 public:
  explicit SideLoad(int device)
      : device_(device),
        cache_(device, std::span<const float>(random_floats())),
        a_(device, std::span<const std::uint16_t>(random_matrix(1))),
        b_(device, std::span<const std::uint16_t>(random_matrix(2))),
        attention_(device, kSideHeads),
        product_(device, kSideSize * kSideSize),
        times_(device, done_.size()),
        stream_(device) {
    const cuda::DeviceGuard guard(device);
    for (cudaEvent_t& event : done_)
      cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "side events");
    start(0);
    start(1);
    wait();
    first_attention_ = attention_.download();
    first_product_ = product_.download();
  }
  SideLoad(const SideLoad&) = delete;
  SideLoad& operator=(const SideLoad&) = delete;
  ~SideLoad() {
    cudaStreamSynchronize(stream_.get());
    for (cudaEvent_t event : done_) cudaEventDestroy(event);
  }

  /// Starts the next kernel, unless enough are on their way.
  void step() {
    cudaEvent_t& oldest = done_[started_ % done_.size()];
    if (started_ >= done_.size() && cudaEventQuery(oldest) == cudaErrorNotReady) return;
    const cuda::DeviceGuard guard(device_);
    start(started_ % 2);
    cuda::check(cudaEventRecord(oldest, stream_.get()), "side load");
    ++started_;
  }
  void wait() { cuda::check(cudaStreamSynchronize(stream_.get()), "side load"); }
  [[nodiscard]] std::size_t kernels() const { return started_; }
  /// True if blocks of one of the last kernels ran between two times of this device's clock.
  [[nodiscard]] bool ran_between(unsigned long long begin, unsigned long long end) const {
    for (const SideTimes& times : times_.download()) {
      if (times.begin >= end || times.begin == 0) continue;
      // Without an end no block has ended yet.
      if (times.end > begin || times.end == 0) return true;
    }
    return false;
  }
  /// True if the last results are those of the first kernels.
  [[nodiscard]] bool results_unchanged() const {
    return attention_.download() == first_attention_ && product_.download() == first_product_;
  }

 private:
  void start(std::size_t kind) {
    SideTimes* const times = times_.data() + started_ % done_.size();
    cuda::check(launch_side_clear(times, stream_.get()), "side load");
    cuda::check(kind == 0
                    ? launch_side_attention(cache_.data(), attention_.data(), times, stream_.get())
                    : launch_side_gemm(a_.data(), b_.data(), product_.data(), times, stream_.get()),
                "side load");
  }
  static std::vector<float> random_floats() {
    std::mt19937 rng(5);
    std::vector<float> values(std::size_t{kSideHeads} * kSideHeadBytes / sizeof(float));
    for (float& value : values) value = static_cast<float>(rng() % 2048) / 1024.0F - 1.0F;
    return values;
  }
  static std::vector<std::uint16_t> random_matrix(unsigned seed) {
    std::mt19937 rng(seed);
    std::vector<std::uint16_t> values(std::size_t{kSideSize} * kSideSize);
    for (std::uint16_t& value : values)
      value = float_to_bf16(static_cast<float>(rng() % 256) / 128.0F - 1.0F);
    return values;
  }

  std::array<cudaEvent_t, 4> done_ = {};
  std::size_t started_ = 0;
  int device_;
  GpuArray<float> cache_;
  GpuArray<std::uint16_t> a_, b_;
  GpuArray<float> attention_, product_;
  GpuArray<SideTimes> times_;  ///< of the kernels that may be on their way
  GpuStream stream_;
  std::vector<float> first_attention_, first_product_;
};

}  // namespace megamoe
