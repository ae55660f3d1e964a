#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "megamoe/export.h"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Order of the 2 * intermediate rows of w1 (and of its per-row scales and of b1).
enum class W1Order : std::uint8_t {
  gate_then_up,   ///< all gate rows, then all up rows: a checkpoint's order
  interleaved_8,  ///< 8 gate rows, the 8 up rows of the same channels, and so on: the kernel's
                  ///< order
};

/// Expert weights as plain pointers, expert-major and contiguous; nothing is owned. E =
/// num_experts.
///
/// | field     | fp8                     | bf16        | mxfp4, mxfp8_mxfp4              |
/// | w1        | e4m3 [E, 2I, H]         | BF16        | e2m1 [E, 2I, H/2], low nibble first |
/// | w1_scales | float [E, 2I/128, H/128]| null        | UE8M0 [E, 2I, H/32]             |
/// | w2        | e4m3 [E, H, I]          | BF16        | e2m1 [E, H, I/2]                |
/// | w2_scales | float [E, H/128, I/128] | null        | UE8M0 [E, H, I/32]              |
/// | b1, b2    | float [E, 2I], [E, H], or null: added before the activation, and before rounding o
/// |
///
/// The 128x128 scales of w1 are never interleaved: first the I/128 rows of gate blocks, then those
/// of up blocks.
struct ExpertTensors {
  Precision precision = Precision::fp8;
  W1Order w1_order = W1Order::interleaved_8;
  int num_experts = 0;
  int hidden = 0;
  int intermediate = 0;
  const std::byte* w1 = nullptr;
  const std::byte* w1_scales = nullptr;
  const std::byte* w2 = nullptr;
  const std::byte* w2_scales = nullptr;
  const float* b1 = nullptr;
  const float* b2 = nullptr;
};

/// Bytes of one expert's tensors, in the order of ExpertTensors.
struct ExpertBytes {
  std::size_t w1 = 0, w1_scales = 0, w2 = 0, w2_scales = 0;
};
MEGAMOE_API ExpertBytes expert_bytes(Precision precision, int hidden, int intermediate);

/// The row of a w1 in the kernel's order that holds logical row `row` (gate rows first, then up
/// rows).
constexpr int interleaved_row(int row, int intermediate) {
  const bool up = row >= intermediate;
  const int channel = up ? row - intermediate : row;
  return channel / 8 * 16 + (up ? 8 : 0) + channel % 8;
}

/// Puts one expert's w1 rows (row_bytes each) from a checkpoint's order into the kernel's order.
/// `from` and `to` may not overlap, except that `from == to` works in place, with one row of
/// scratch memory.
MEGAMOE_API void interleave_rows(const std::byte* from, std::byte* to, int intermediate,
                                 std::size_t row_bytes);

}  // namespace megamoe
