#include "host/tensor_maps.hpp"

#include <array>
#include <cstdint>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

constexpr cuuint32_t kBoxBytes = 128;

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's entry point, so that the library does not link against the driver.
EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error(ErrorCode::system, fmt::format("the driver has no cuTensorMapEncodeTiled: {}",
                                               cudaGetErrorString(error)));
  }
  return reinterpret_cast<EncodeTiled>(function);
}

template <std::size_t kRank>
CUtensorMap encode(const void* base, const std::array<cuuint64_t, kRank>& extents,
                   const std::array<cuuint64_t, kRank - 1>& strides, int box_rows,
                   L2Promotion promotion) {
  static const EncodeTiled function = encode_tiled();
  std::array<cuuint32_t, kRank> box{}, element_strides{};
  box.fill(1);
  element_strides.fill(1);
  box[0] = kBoxBytes;
  box[1] = static_cast<cuuint32_t>(box_rows);
  CUtensorMap map{};
  const CUresult result =
      function(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kRank, const_cast<void*>(base), extents.data(),
               strides.data(), box.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B,
               promotion == L2Promotion::none ? CU_TENSOR_MAP_L2_PROMOTION_NONE
                                              : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::system,
                fmt::format("tensor map of {} rows of {} bytes at {} (box of {} rows): driver "
                            "error {}",
                            extents[1], extents[0], base, box_rows, static_cast<int>(result)));
  }
  return map;
}

}  // namespace

CUtensorMap expert_weight_map(const void* weights, int experts, int rows, int row_bytes,
                              int box_rows, L2Promotion promotion) {
  const auto bytes = static_cast<cuuint64_t>(row_bytes), height = static_cast<cuuint64_t>(rows);
  return encode<3>(weights, {bytes, height, static_cast<cuuint64_t>(experts)},
                   {bytes, bytes * height}, box_rows, promotion);
}

CUtensorMap row_map(const void* base, long rows, int row_bytes, int box_rows,
                    L2Promotion promotion) {
  const auto bytes = static_cast<cuuint64_t>(row_bytes);
  return encode<2>(base, {bytes, static_cast<cuuint64_t>(rows)}, {bytes}, box_rows, promotion);
}

}  // namespace megamoe
