#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host/checkpoint/matrix_source.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Whether a matrix stored as `from` can be had as `to`.
bool convertible(StoredFormat from, Precision to);
/// The precision that holds `from` without any change.
Precision precision_of(StoredFormat from);
/// Throws Error(unsupported) naming both and the nearest that works, unless convertible.
void require_convertible(StoredFormat from, Precision to, const std::string& where);

/// Where one matrix of one expert goes: row r of the source becomes row row_of(r) of `codes`.
struct MatrixTarget {
  Precision precision = Precision::fp8;
  int rows = 0;  ///< padded, multiples of 128
  int cols = 0;
  std::byte* codes = nullptr;   ///< first row of the expert's w1 or w2, zeroed
  std::byte* scales = nullptr;  ///< fp8: this matrix's float [rows / 128, cols / 128]; mxfp4: first
                                ///< row of the expert's UE8M0 scales; null for bf16
  /// Which half of an interleaved w1, or a plain matrix.
  Matrix matrix = Matrix::down;

  [[nodiscard]] std::size_t row_of(int row) const;
};

/// Memory that conversions use again for every matrix.
struct ConversionScratch {
  std::vector<std::uint16_t> values;
  std::vector<std::uint8_t> codes;
};

/// Converts and places one matrix, padding included. Throws Error(unsupported) for MXFP4 to fp8
/// when a block's values cannot be had exactly with one scale.
void convert_matrix(const MatrixSource& source, const MatrixTarget& target,
                    ConversionScratch& scratch);

}  // namespace megamoe
