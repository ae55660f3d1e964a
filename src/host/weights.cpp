#include "megamoe/weights.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace megamoe {

ExpertBytes expert_bytes(Precision precision, int hidden, int intermediate) {
  const auto h = static_cast<std::size_t>(hidden);
  const auto i = static_cast<std::size_t>(intermediate);
  const std::size_t weights = h * i;  // of w2; w1 has twice as many
  switch (precision) {
    case Precision::fp8: {
      const std::size_t scales = weights / (128 * 128) * sizeof(float);
      return {.w1 = 2 * weights, .w1_scales = 2 * scales, .w2 = weights, .w2_scales = scales};
    }
    case Precision::bf16:
      return {.w1 = 4 * weights, .w1_scales = 0, .w2 = 2 * weights, .w2_scales = 0};
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      return {
          .w1 = weights, .w1_scales = weights / 16, .w2 = weights / 2, .w2_scales = weights / 32};
  }
  return {};
}

void interleave_rows(const std::byte* from, std::byte* to, int intermediate,
                     std::size_t row_bytes) {
  const int rows = 2 * intermediate;
  const auto row_of = [row_bytes](auto* base, int row) {
    return base + static_cast<std::size_t>(row) * row_bytes;
  };
  if (from != to) {
    for (int row = 0; row < rows; ++row)
      std::memcpy(row_of(to, interleaved_row(row, intermediate)), row_of(from, row), row_bytes);
    return;
  }
  // In place: carries one row along each cycle of the permutation.
  std::vector<bool> placed(static_cast<std::size_t>(rows), false);
  std::vector<std::byte> carried(row_bytes);
  for (int start = 0; start < rows; ++start) {
    if (placed[static_cast<std::size_t>(start)]) continue;
    std::memcpy(carried.data(), row_of(to, start), row_bytes);
    int row = start;
    do {
      row = interleaved_row(row, intermediate);
      std::swap_ranges(carried.begin(), carried.end(), row_of(to, row));
      placed[static_cast<std::size_t>(row)] = true;
    } while (row != start);
  }
}

}  // namespace megamoe
