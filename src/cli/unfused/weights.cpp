#include "cli/unfused/weights.hpp"

#include "cli/unfused/plan.hpp"

namespace megamoe::cli::unfused {
namespace {

std::size_t w1_bytes(int hidden, int intermediate) { return 2 * size(intermediate) * size(hidden); }
std::size_t w1_scale_count(int hidden, int intermediate) {
  return 2 * size(intermediate) / 128 * size(scale_stride(hidden));
}
std::size_t w2_scale_count(int hidden, int intermediate) {
  return size(hidden) / 128 * size(scale_stride(intermediate));
}

/// Copies `rows` rows of `width` bytes between two strides.
void copy_rows(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
               std::size_t width, std::size_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  cuda::check(cudaMemcpy2DAsync(to, to_stride, from, from_stride, width, rows,
                                cudaMemcpyDeviceToDevice, stream),
              "copying weights for cuBLASLt");
}

}  // namespace

LibraryWeights::LibraryWeights(int device, const ExpertTensors& from)
    : from_(from),
      w1_(device, size(from.num_experts) * w1_bytes(from.hidden, from.intermediate)),
      w1_scales_(device, size(from.num_experts) * w1_scale_count(from.hidden, from.intermediate) *
                             sizeof(float)),
      w2_scales_(device, size(from.num_experts) * w2_scale_count(from.hidden, from.intermediate) *
                             sizeof(float)) {
  const cuda::DeviceGuard guard(device);
  const cuda::PrivateStream stream;
  const std::size_t hidden = size(from.hidden), intermediate = size(from.intermediate);
  const std::size_t experts = size(from.num_experts);
  // 8 gate rows, 8 up rows, and so on become all gate rows, then all up rows.
  const std::size_t piece = 8 * hidden;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::byte* kernel_order = from.w1 + e * w1_bytes(from.hidden, from.intermediate);
    std::byte* to = w1_.data() + e * w1_bytes(from.hidden, from.intermediate);
    copy_rows(to, piece, kernel_order, 2 * piece, piece, intermediate / 8, stream.get());
    copy_rows(to + intermediate * hidden, piece, kernel_order + piece, 2 * piece, piece,
              intermediate / 8, stream.get());
  }
  const auto copy_scales = [&](const cuda::DeviceBuffer& to, const std::byte* scales, int channels,
                               std::size_t rows) {
    const std::size_t width = size(channels) / 128 * sizeof(float);
    copy_rows(to.data(), size(scale_stride(channels)) * sizeof(float), scales, width, width, rows,
              stream.get());
  };
  copy_scales(w1_scales_, from.w1_scales, from.hidden, experts * 2 * intermediate / 128);
  copy_scales(w2_scales_, from.w2_scales, from.intermediate, experts * hidden / 128);
  cuda::check(cudaStreamSynchronize(stream.get()), "copying weights for cuBLASLt");
}

const std::byte* LibraryWeights::w1(int expert) const {
  return w1_.data() + size(expert) * w1_bytes(from_.hidden, from_.intermediate);
}

const float* LibraryWeights::w1_scales(int expert) const {
  return reinterpret_cast<const float*>(w1_scales_.data()) +
         size(expert) * w1_scale_count(from_.hidden, from_.intermediate);
}

const std::byte* LibraryWeights::w2(int expert) const {
  return from_.w2 + size(expert) * size(from_.hidden) * size(from_.intermediate);
}

const float* LibraryWeights::w2_scales(int expert) const {
  return reinterpret_cast<const float*>(w2_scales_.data()) +
         size(expert) * w2_scale_count(from_.hidden, from_.intermediate);
}

std::size_t LibraryWeights::bytes(const Problem& p, int num_experts) {
  return size(num_experts) * (w1_bytes(p.hidden, p.intermediate) +
                              sizeof(float) * (w1_scale_count(p.hidden, p.intermediate) +
                                               w2_scale_count(p.hidden, p.intermediate)));
}

}  // namespace megamoe::cli::unfused
