#pragma once

#include <cstdint>
#include <span>

namespace megamoe::ref {

/// How far y is from the reference.
struct Difference {
  /// 1 - 2<a,b> / (|a|^2 + |b|^2) over everything, computed as |a-b|^2 / (|a|^2 + |b|^2), which is
  /// the same without cancellation. Two all-zero outputs: 0. One all-zero output: 1. Any NaN or Inf
  /// in either output, at whatever place: infinity, so that no bound can accept it.
  double diff = 0;
  /// The largest |a-b| / |b| of a row, b the reference; 0 where both are zero, infinity where only
  /// the reference is, or where any value of the row is not finite.
  double worst_row_relative_l2 = 0;
  /// The row where that is, the first of several; -1 when there are no rows.
  int worst_row = -1;
};

/// Compares y with y_ref, both BF16 [rows, hidden]. Throws Error when the sizes differ or are not
/// rows of `hidden`.
Difference compare(std::span<const std::uint16_t> y, std::span<const std::uint16_t> y_ref,
                   int hidden);

}  // namespace megamoe::ref
