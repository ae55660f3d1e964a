#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "host/cuda/runtime.hpp"
#include "ref/random_case.hpp"

// Device memory and streams for tests.

namespace megamoe {

/// `count` values in the memory of one device, zeroed.
template <class T>
class GpuArray {
 public:
  GpuArray(int device, std::size_t count)
      : buffer_(device, std::max<std::size_t>(1, count * sizeof(T))), count_(count) {}
  GpuArray(int device, std::span<const T> values) : GpuArray(device, values.size()) {
    upload(values);
  }

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  void upload(std::span<const T> values) {
    if (values.empty()) return;
    cuda::check(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyDefault),
                "upload");
    // Pageable memory may still be on its way when the copy returns.
    cuda::check(cudaStreamSynchronize(nullptr), "upload");
  }
  [[nodiscard]] std::vector<T> download(std::size_t count) const {
    std::vector<T> values(count);
    if (count == 0) return values;
    cuda::check(cudaMemcpy(values.data(), data(), count * sizeof(T), cudaMemcpyDefault),
                "download");
    return values;
  }
  [[nodiscard]] std::vector<T> download() const { return download(count_); }

 private:
  cuda::DeviceBuffer buffer_;
  std::size_t count_;
};

/// A stream of one device that waits for no other.
class GpuStream {
 public:
  explicit GpuStream(int device) : guard_(std::make_unique<cuda::DeviceGuard>(device)) {
    stream_ = std::make_unique<cuda::PrivateStream>();
    guard_.reset();
  }
  [[nodiscard]] cudaStream_t get() const { return stream_->get(); }

 private:
  std::unique_ptr<cuda::DeviceGuard> guard_;
  std::unique_ptr<cuda::PrivateStream> stream_;
};

/// Experts' tensors in the memory of one device.
class GpuExperts {
 public:
  GpuExperts(int device, const ref::OwnedExpertTensors& from)
      : w1_(device, from.w1),
        w1_scales_(device, from.w1_scales),
        w2_(device, from.w2),
        w2_scales_(device, from.w2_scales),
        view_(from.view()) {
    view_.w1 = w1_.data();
    view_.w1_scales = w1_scales_.data();
    view_.w2 = w2_.data();
    view_.w2_scales = w2_scales_.data();
  }
  [[nodiscard]] const ExpertTensors& view() const { return view_; }

 private:
  GpuArray<std::byte> w1_, w1_scales_, w2_, w2_scales_;
  ExpertTensors view_;
};

}  // namespace megamoe
