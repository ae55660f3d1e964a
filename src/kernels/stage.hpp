#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

// The staging kernel: quantises hidden states into a rank's input region, with their routing.

namespace megamoe {

/// What staging calls of one rank tell each other, in device memory; zero at first.
struct StageWords {
  std::uint32_t staged_tokens;  ///< rows whose ids are not those of an empty row
  std::uint32_t ctas_out;
};

struct StageParams {
  const std::uint16_t* hidden_states;  ///< BF16 [num_tokens][hidden], 16-byte aligned
  const void* ids;                     ///< [num_tokens][top_k], int64 or int32
  const float* weights;                ///< [num_tokens][top_k]
  std::byte* x;                        ///< e4m3 [num_tokens][hidden]
  float* x_scales;                     ///< [num_tokens][hidden / 128]
  std::int64_t* topk_idx;              ///< [capacity][top_k], -1 outside staged_tokens
  float* topk_weights;                 ///< [capacity][top_k]
  StageWords* words;
  std::uint32_t num_tokens;
  std::uint32_t hidden_granules;  ///< hidden / 128
  std::uint32_t top_k;
  bool wide_ids;         ///< ids are int64
  float routed_scaling;  ///< factor of all weights
};

/// Stages in stream order, with programmatic launch on both sides. Rows that the call before staged
/// and this one does not get id -1 and weight 0, so the time does not depend on the capacity.
/// `most_staged`: the most tokens of any call, this one included, as far as the caller knows; it
/// decides the grid only.
cudaError_t launch_stage(const StageParams& params, std::uint32_t most_staged,
                         std::uint32_t num_sms, cudaStream_t stream);

/// Loads the kernel on the current device, so that no launch does.
cudaError_t load_stage_kernels();

}  // namespace megamoe
