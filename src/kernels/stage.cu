#include "kernels/stage.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "ptx/warp.cuh"

namespace megamoe {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kCtasPerSm = 6;
/// A group of 128 channels is the work of 16 lanes, 8 channels each: 16 bytes in, 8 bytes out.
constexpr std::uint32_t kLanes = 16;
constexpr std::uint32_t kChannels = kScaleGroup / kLanes;
/// Groups in flight per 16 lanes.
constexpr std::uint32_t kUnroll = 4;

__device__ void values_of(const uint4& raw, float (&values)[kChannels]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = bf16_to_float(static_cast<std::uint16_t>(words[i] & 0xFFFFU));
    values[2 * i + 1] = bf16_to_float(static_cast<std::uint16_t>(words[i] >> 16));
  }
}

/// Quantises one group; all 16 lanes come here, also when `valid` is false.
__device__ void quantize_group_lanes(const StageParams& p, const uint4& raw, std::size_t group,
                                     std::uint32_t lane, bool valid) {
  float values[kChannels];
  values_of(raw, values);
  float amax = 0.0F;
#pragma unroll
  for (std::uint32_t i = 0; i < kChannels; ++i) amax = max_abs(amax, values[i]);
#pragma unroll
  for (std::uint32_t step = kLanes / 2; step > 0; step /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, static_cast<int>(step)));
  }
  if (!valid) return;
  const GroupScale scale = group_scale(amax);
  std::uint32_t codes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* v = values + 4 * i;
    codes[i] = ptx::to_e4m3x2(v[0] * scale.multiplier, v[1] * scale.multiplier) |
               ptx::to_e4m3x2(v[2] * scale.multiplier, v[3] * scale.multiplier) << 16;
  }
  auto* to = reinterpret_cast<uint2*>(p.x + group * kScaleGroup + lane * kChannels);
  *to = make_uint2(codes[0], codes[1]);
  if (lane == 0) p.x_scales[group] = scale.scale;
}

/// Rows are contiguous on both sides, so groups are numbered through all of them.
__device__ void stage_groups(const StageParams& p) {
  const std::size_t groups = static_cast<std::size_t>(p.num_tokens) * p.hidden_granules;
  const std::uint32_t lane = threadIdx.x % kLanes;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * (kThreads / kLanes);
  const std::size_t own = static_cast<std::size_t>(blockIdx.x) * (kThreads / kLanes);
  for (std::size_t round = own; round < groups; round += kUnroll * stride) {
    const std::size_t first = round + threadIdx.x / kLanes;
    uint4 raw[kUnroll];
#pragma unroll
    for (std::uint32_t u = 0; u < kUnroll; ++u) {
      const std::size_t group = first + u * stride;
      raw[u] = make_uint4(0, 0, 0, 0);
      if (group < groups) {
        raw[u] = *reinterpret_cast<const uint4*>(p.hidden_states + group * kScaleGroup +
                                                 lane * kChannels);
      }
    }
#pragma unroll
    for (std::uint32_t u = 0; u < kUnroll; ++u) {
      const std::size_t group = first + u * stride;
      quantize_group_lanes(p, raw[u], group, lane, group < groups);
    }
  }
}

/// Ids and weights of this call, then none where the call before had some.
__device__ void stage_slots(const StageParams& p, std::uint32_t staged_before) {
  const std::size_t slots = static_cast<std::size_t>(p.num_tokens) * p.top_k;
  const std::size_t slots_before = static_cast<std::size_t>(staged_before) * p.top_k;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  const std::size_t own = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::size_t i = own; i < slots; i += stride) {
    p.topk_idx[i] = p.wide_ids ? static_cast<const std::int64_t*>(p.ids)[i]
                               : static_cast<const std::int32_t*>(p.ids)[i];
    p.topk_weights[i] = p.weights[i] * p.routed_scaling;
  }
  for (std::size_t i = slots + own; i < slots_before; i += stride) {
    p.topk_idx[i] = -1;
    p.topk_weights[i] = 0.0F;
  }
}

__global__ __launch_bounds__(kThreads,
                             kCtasPerSm) void stage_kernel(const __grid_constant__ StageParams p) {
  // The call before may still read the input region, and its producer write the inputs.
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const std::uint32_t staged_before = p.words->staged_tokens;
  stage_groups(p);
  stage_slots(p, staged_before);
  __syncthreads();  // every thread of this CTA has read staged_tokens
  if (threadIdx.x != 0) return;
  // The last CTA out changes what all have read. Relaxed: the next launch reads it.
  if (atomicAdd(&p.words->ctas_out, 1U) == gridDim.x - 1) {
    p.words->ctas_out = 0;
    p.words->staged_tokens = p.num_tokens;
  }
}

std::uint32_t lesser(std::size_t a, std::size_t b) {
  return static_cast<std::uint32_t>(a < b ? a : b);
}

}  // namespace

cudaError_t launch_stage(const StageParams& params, std::uint32_t most_staged,
                         std::uint32_t num_sms, cudaStream_t stream) {
  const std::size_t groups = static_cast<std::size_t>(params.num_tokens) * params.hidden_granules;
  const std::size_t slots = static_cast<std::size_t>(most_staged) * params.top_k;
  const std::size_t for_groups = (groups + kThreads / kLanes - 1) / (kThreads / kLanes);
  const std::size_t for_slots = (slots + kThreads - 1) / kThreads;
  const std::size_t wanted = for_groups > for_slots ? for_groups : for_slots;
  const std::uint32_t ctas = lesser(wanted, static_cast<std::size_t>(num_sms) * kCtasPerSm);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas == 0 ? 1 : ctas);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, stage_kernel, params);
}

cudaError_t load_stage_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, stage_kernel);
}

}  // namespace megamoe
