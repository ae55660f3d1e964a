#pragma once

#include <cstddef>

#include <cuda.h>

namespace megamoe {

/// Which lines L2 fetches beside those that a tensor copy names.
enum class L2Promotion { none, bytes_256 };

/// Tensor map of expert weights, bytes [experts, rows, row_bytes] contiguous, in boxes of 128 bytes
/// x `box_rows` rows of one expert, 128-byte swizzle. Rows past an expert's end read as zero and
/// count as copied. Throws Error when the driver refuses.
CUtensorMap expert_weight_map(const void* weights, int experts, int rows, int row_bytes,
                              int box_rows, L2Promotion promotion);

/// Tensor map of activation rows, bytes [rows, row_bytes] contiguous, in boxes of 128 bytes x
/// `box_rows` rows, 128-byte swizzle.
CUtensorMap row_map(const void* base, long rows, int row_bytes, int box_rows,
                    L2Promotion promotion);

}  // namespace megamoe
