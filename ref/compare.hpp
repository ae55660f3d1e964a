#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace megamoe::ref {

/// What y of a row and its reference, both BF16 [count], have between them. Values that are NaN in
/// both, or the same infinity, are equal and take no part in the sums: NaN of a token is its own
/// row's, and is to be there. Any other NaN or Inf makes squared and energy infinite.
struct RowDistance {
  double squared = 0;    ///< |y - reference|^2
  double energy = 0;     ///< |y|^2 + |reference|^2
  double reference = 0;  ///< |reference|^2
  long same_non_finite = 0;
  long wrong_non_finite = 0;
};
RowDistance row_distance(const std::uint16_t* y, const std::uint16_t* reference, std::size_t count);

/// How far y is from the reference.
struct Difference {
  /// 1 - 2<a,b> / (|a|^2 + |b|^2) over everything, computed as |a-b|^2 / (|a|^2 + |b|^2), which is
  /// the same without cancellation. Two all-zero outputs: 0. One all-zero output: 1. Infinity, so
  /// that no bound can accept it, where a value is NaN or Inf and its partner is not the same.
  double diff = 0;
  /// The largest |a-b| / |b| of a row, b the reference; 0 where both are zero, infinity where only
  /// the reference is, or where a value of the row is NaN or Inf and its partner is not the same.
  double worst_row_relative_l2 = 0;
  /// The row where that is, the first of several; -1 when there are no rows.
  int worst_row = -1;
  long same_non_finite = 0;   ///< values that are NaN, or the same infinity, in both
  long wrong_non_finite = 0;  ///< values that are NaN or Inf, and their partners are not the same
};

/// Compares y with y_ref, both BF16 [rows, hidden]. Throws Error when the sizes differ or are not
/// rows of `hidden`.
Difference compare(std::span<const std::uint16_t> y, std::span<const std::uint16_t> y_ref,
                   int hidden);

}  // namespace megamoe::ref
