#pragma once

#include <cstddef>
#include <cstdint>

namespace megamoe {

/// Where the dispatch-only mode leaves what was pulled, by row of the rank's plan (local experts
/// in order, rows of one by source, then token). Null pointers: the ordinary mode.
struct DispatchSnapshot {
  std::byte* x;         ///< activations [rows][hidden]
  float* x_scales;      ///< [rows][hidden / 128]; other scales of the same row bytes on the CPU
  std::uint64_t* meta;  ///< [rows] {source rank, token * contributions + slot}
  float* weights;       ///< [rows] top-k weight, 1 for shared experts
  std::uint32_t* rows;  ///< [local experts] rows of each
};

}  // namespace megamoe
