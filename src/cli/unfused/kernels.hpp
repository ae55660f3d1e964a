#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "megamoe/problem.hpp"
#include "numerics/hd.hpp"

// What the unfused chain does between products and exchanges. Row numbers are those of plan.hpp.

namespace megamoe::cli::unfused {

/// Bytes of one quantised row as it travels: codes, then FP32 scales, padded to 16.
MEGAMOE_HD constexpr std::size_t packed_row_bytes(int channels) {
  const auto hidden = static_cast<std::size_t>(channels);
  return (hidden + hidden / 128 * sizeof(float) + 15) / 16 * 16;
}

struct PackParams {
  const std::byte* x;         ///< e4m3 [tokens][hidden]
  const float* x_scales;      ///< [tokens][hidden / 128]
  const std::int32_t* token;  ///< [rows]
  std::byte* packed;          ///< [rows][packed_row_bytes]
  int rows, hidden;
};
/// Makes the rows that are sent.
cudaError_t launch_pack(const PackParams& params, cudaStream_t stream);

struct ExpandParams {
  const std::byte* x;                ///< e4m3 [tokens][hidden]
  const float* x_scales;             ///< [tokens][hidden / 128]
  const std::byte* received;         ///< [received rows][packed_row_bytes]
  const std::int32_t* source;        ///< [rows] input row, negative: padding, left as it is
  const std::int32_t* expert;        ///< [rows] local expert
  const std::int32_t* expert_begin;  ///< [experts + 1]
  std::byte* out;                    ///< e4m3 [rows][hidden]
  float* out_scales;  ///< for each expert [hidden / 128][its rows], expert after expert
  int num_tokens, rows, hidden;
};
/// Puts each expert's rows together.
cudaError_t launch_expand(const ExpandParams& params, cudaStream_t stream);

struct ActivateParams {
  const float* gate_up;              ///< [rows][2 * intermediate], gate first
  const std::int32_t* expert;        ///< [rows]
  const std::int32_t* expert_begin;  ///< [experts + 1]
  std::byte* h;                      ///< e4m3 [rows][intermediate]
  float* h_scales;                   ///< for each expert [intermediate / 128][its rows]
  Activation activation;
  int rows, intermediate;
};
/// Activates and quantises again.
cudaError_t launch_activate(const ActivateParams& params, cudaStream_t stream);

struct GatherParams {
  const std::uint16_t* rows_of;  ///< BF16 [..][hidden]
  const std::int32_t* row;       ///< [rows]
  std::uint16_t* out;            ///< BF16 [rows][hidden]
  int rows, hidden;
};
/// Puts the rows together that go back.
cudaError_t launch_gather(const GatherParams& params, cudaStream_t stream);

struct SumParams {
  const std::uint16_t* own;          ///< BF16 [own rows][hidden]
  const std::uint16_t* gathered;     ///< BF16 [gathered rows][hidden]
  const std::int32_t* contribution;  ///< [tokens][top_k + shared] output row, negative: none
  const float* weights;              ///< [tokens][top_k]; shared experts weigh 1
  std::uint16_t* y;                  ///< BF16 [tokens][hidden]
  int own_rows, num_tokens, hidden, top_k, shared;
};
/// y: FP32 sums in slot order, rounded once.
cudaError_t launch_sum(const SumParams& params, cudaStream_t stream);

}  // namespace megamoe::cli::unfused
