#include "cli/unfused/kernels.hpp"
#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"

namespace megamoe::cli::unfused {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
/// Channels of one 16-byte piece of BF16.
constexpr int kPiece = 8;

/// One CTA per row; a launch of no rows is no launch.
template <class Params, class Kernel>
cudaError_t launch_rows(Kernel kernel, const Params& params, int rows, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

__device__ void copy_pieces(const std::byte* from, std::byte* to, int bytes) {
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(to);
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += kThreads) out[i] = in[i];
}

__global__ void pack(const PackParams p) {
  const std::size_t row = blockIdx.x, hidden = static_cast<std::size_t>(p.hidden);
  const std::size_t groups = hidden / kScaleGroup;
  const auto token = static_cast<std::size_t>(p.token[row]);
  std::byte* to = p.packed + row * packed_row_bytes(p.hidden);
  copy_pieces(p.x + token * hidden, to, p.hidden);
  auto* scales = reinterpret_cast<float*>(to + hidden);
  for (std::size_t g = threadIdx.x; g < groups; g += kThreads)
    scales[g] = p.x_scales[token * groups + g];
}

/// Where the scales of one expert row begin, and the stride between its groups.
struct ScalePlace {
  std::size_t first, stride;
};

__device__ ScalePlace scale_place(const std::int32_t* expert_begin, int expert, std::size_t row,
                                  std::size_t groups) {
  const auto begin = static_cast<std::size_t>(expert_begin[expert]);
  const auto end = static_cast<std::size_t>(expert_begin[expert + 1]);
  return {begin * groups + (row - begin), end - begin};
}

__global__ void expand(const ExpandParams p) {
  const std::size_t row = blockIdx.x, hidden = static_cast<std::size_t>(p.hidden);
  const std::int32_t source = p.source[row];
  if (source < 0) return;
  const std::size_t groups = hidden / kScaleGroup;
  const std::byte* codes;
  const float* scales;
  if (source < p.num_tokens) {
    codes = p.x + static_cast<std::size_t>(source) * hidden;
    scales = p.x_scales + static_cast<std::size_t>(source) * groups;
  } else {
    codes =
        p.received + static_cast<std::size_t>(source - p.num_tokens) * packed_row_bytes(p.hidden);
    scales = reinterpret_cast<const float*>(codes + hidden);
  }
  copy_pieces(codes, p.out + row * hidden, p.hidden);
  const ScalePlace place = scale_place(p.expert_begin, p.expert[row], row, groups);
  for (std::size_t g = threadIdx.x; g < groups; g += kThreads)
    p.out_scales[place.first + g * place.stride] = scales[g];
}

/// One warp takes a group of 128 channels at a time, four channels per lane.
__global__ void activate_rows(const ActivateParams p) {
  const std::size_t row = blockIdx.x, width = static_cast<std::size_t>(p.intermediate);
  const std::size_t groups = width / kScaleGroup;
  const unsigned lane = threadIdx.x % kWarp;
  const ScalePlace place = scale_place(p.expert_begin, p.expert[row], row, groups);
  for (std::size_t group = threadIdx.x / kWarp; group < groups; group += kThreads / kWarp) {
    const std::size_t channel = group * kScaleGroup + lane * 4;
    const float* at = p.gate_up + row * 2 * width + channel;
    const float4 gate = *reinterpret_cast<const float4*>(at);
    const float4 up = *reinterpret_cast<const float4*>(at + width);
    const float h[4] = {activate(p.activation, gate.x, up.x), activate(p.activation, gate.y, up.y),
                        activate(p.activation, gate.z, up.z), activate(p.activation, gate.w, up.w)};
    float amax = 0.0F;
    for (const float value : h) amax = max_abs(amax, value);
    for (int step = kWarp / 2; step > 0; step /= 2)
      amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, step));
    const GroupScale scale = group_scale(amax);
    uchar4 codes;
    codes.x = quantize(h[0], scale.multiplier);
    codes.y = quantize(h[1], scale.multiplier);
    codes.z = quantize(h[2], scale.multiplier);
    codes.w = quantize(h[3], scale.multiplier);
    *reinterpret_cast<uchar4*>(p.h + row * width + channel) = codes;
    if (lane == 0) p.h_scales[place.first + group * place.stride] = scale.scale;
  }
}

__global__ void gather(const GatherParams p) {
  const std::size_t row = blockIdx.x, hidden = static_cast<std::size_t>(p.hidden);
  const auto from = static_cast<std::size_t>(p.row[row]);
  copy_pieces(reinterpret_cast<const std::byte*>(p.rows_of + from * hidden),
              reinterpret_cast<std::byte*>(p.out + row * hidden), p.hidden * 2);
}

__device__ void add_piece(const uint4& raw, float weight, float (&sum)[kPiece]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  for (int i = 0; i < 4; ++i) {
    const float low = bf16_to_float(static_cast<std::uint16_t>(words[i] & 0xFFFFU));
    const float high = bf16_to_float(static_cast<std::uint16_t>(words[i] >> 16));
    sum[2 * i] = fmaf(weight, low, sum[2 * i]);
    sum[2 * i + 1] = fmaf(weight, high, sum[2 * i + 1]);
  }
}

__global__ void sum_rows(const SumParams p) {
  const std::size_t token = blockIdx.x, hidden = static_cast<std::size_t>(p.hidden);
  const int slots = p.top_k + p.shared;
  for (std::size_t at = threadIdx.x * kPiece; at < hidden; at += kThreads * kPiece) {
    float sum[kPiece] = {};
    for (int slot = 0; slot < slots; ++slot) {
      const std::int32_t row = p.contribution[token * static_cast<std::size_t>(slots) + slot];
      if (row < 0) continue;
      const std::uint16_t* from =
          row < p.own_rows ? p.own + static_cast<std::size_t>(row) * hidden
                           : p.gathered + static_cast<std::size_t>(row - p.own_rows) * hidden;
      const float weight =
          slot < p.top_k ? p.weights[token * static_cast<std::size_t>(p.top_k) + slot] : 1.0F;
      add_piece(*reinterpret_cast<const uint4*>(from + at), weight, sum);
    }
    std::uint32_t words[4];
    for (int i = 0; i < 4; ++i) {
      words[i] = float_to_bf16(sum[2 * i]) |
                 static_cast<std::uint32_t>(float_to_bf16(sum[2 * i + 1])) << 16;
    }
    *reinterpret_cast<uint4*>(p.y + token * hidden + at) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace

cudaError_t launch_pack(const PackParams& params, cudaStream_t stream) {
  return launch_rows(pack, params, params.rows, stream);
}

cudaError_t launch_expand(const ExpandParams& params, cudaStream_t stream) {
  return launch_rows(expand, params, params.rows, stream);
}

cudaError_t launch_activate(const ActivateParams& params, cudaStream_t stream) {
  return launch_rows(activate_rows, params, params.rows, stream);
}

cudaError_t launch_gather(const GatherParams& params, cudaStream_t stream) {
  return launch_rows(gather, params, params.rows, stream);
}

cudaError_t launch_sum(const SumParams& params, cudaStream_t stream) {
  return launch_rows(sum_rows, params, params.num_tokens, stream);
}

}  // namespace megamoe::cli::unfused
