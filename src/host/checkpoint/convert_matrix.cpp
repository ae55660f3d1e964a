#include "host/checkpoint/convert_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "megamoe/weights.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/quantize.hpp"
#include "numerics/quantize_weights.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

std::size_t row_bytes(Precision precision, int cols) {
  const auto columns = static_cast<std::size_t>(cols);
  switch (precision) {
    case Precision::fp8:
      return columns;
    case Precision::bf16:
      return columns * 2;
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      return columns / 2;
  }
  return 0;
}

const std::byte* source_row(const MatrixSource& source, int row) {
  return source.codes + static_cast<std::size_t>(row) * source.code_stride;
}

/// Codes that stay as they are.
void copy_rows(const MatrixSource& source, const MatrixTarget& target) {
  const std::size_t stride = row_bytes(target.precision, target.cols);
  for (int r = 0; r < source.rows; ++r)
    std::memcpy(target.codes + target.row_of(r) * stride, source_row(source, r),
                source.row_bytes());
}

void store_scale(const MatrixTarget& target, int block_row, int block_col, float scale) {
  const auto index =
      static_cast<std::size_t>(block_row) * (static_cast<std::size_t>(target.cols) / kScaleGroup) +
      static_cast<std::size_t>(block_col);
  std::memcpy(target.scales + index * sizeof scale, &scale, sizeof scale);
}

/// Every block that the padded matrix has, the source has too, since both count in steps of 128.
void copy_block_scales(const MatrixSource& source, const MatrixTarget& target) {
  const std::size_t element = dtype_bytes(source.scale_dtype);
  for (int r = 0; r < target.rows / kScaleGroup; ++r) {
    const std::byte* from = source.scales + static_cast<std::size_t>(r) * source.scale_stride;
    for (int c = 0; c < target.cols / kScaleGroup; ++c)
      store_scale(target, r, c,
                  load_float(from + static_cast<std::size_t>(c) * element, source.scale_dtype));
  }
}

/// UE8M0 scales; padding repeats the last group of its row, and padded rows the last row.
void copy_group_scales(const MatrixSource& source, const MatrixTarget& target) {
  const auto real = static_cast<std::size_t>(source.cols / kMxScaleGroup);
  const auto padded = static_cast<std::size_t>(target.cols / kMxScaleGroup);
  for (int r = 0; r < target.rows; ++r) {
    const std::byte* from = source.scales + static_cast<std::size_t>(std::min(r, source.rows - 1)) *
                                                source.scale_stride;
    std::byte* to = target.scales + target.row_of(r) * padded;
    std::memcpy(to, from, real);
    std::fill(to + real, to + padded, from[real - 1]);
  }
}

/// BF16 to fp8, over the padded matrix.
void quantise(const MatrixSource& source, const MatrixTarget& target, ConversionScratch& scratch) {
  const auto rows = static_cast<std::size_t>(target.rows);
  const auto cols = static_cast<std::size_t>(target.cols);
  scratch.values.assign(rows * cols, 0);
  scratch.codes.resize(rows * cols);
  for (int r = 0; r < source.rows; ++r)
    std::memcpy(scratch.values.data() + static_cast<std::size_t>(r) * cols, source_row(source, r),
                source.row_bytes());
  std::vector<float> scales(rows * cols / (kScaleGroup * kScaleGroup));
  quantize_weights_fp8(scratch.values.data(), target.rows, target.cols, scratch.codes.data(),
                       scales.data());
  std::memcpy(target.scales, scales.data(), scales.size() * sizeof(float));
  for (int r = 0; r < target.rows; ++r)
    std::memcpy(target.codes + target.row_of(r) * cols,
                scratch.codes.data() + static_cast<std::size_t>(r) * cols, cols);
}

/// The 128x128 block at (first_row, first_col) of an MXFP4 matrix as e4m3 with one scale. The scale
/// is a power of two that makes the block's largest exponent fit: 6 * 2^6 is below 448. What does
/// not fit below it is refused, since rounding here would change the model.
void rebase_block(const MatrixSource& source, const MatrixTarget& target, int first_row,
                  int first_col) {
  constexpr int kHeadroom = 6;
  const int rows = std::min(kScaleGroup, source.rows - first_row);
  const int cols = std::min(kScaleGroup, source.cols - first_col);
  const auto code_at = [&](int r, int c) {
    const auto byte = std::to_integer<std::uint8_t>(source_row(source, r)[c / 2]);
    return static_cast<std::uint8_t>(c % 2 == 0 ? byte & 15 : byte >> 4);
  };
  const auto scale_at = [&](int r, int c) {
    return std::to_integer<std::uint8_t>(
        source.scales[static_cast<std::size_t>(r) * source.scale_stride +
                      static_cast<std::size_t>(c / kMxScaleGroup)]);
  };
  int largest = -1;
  for (int r = first_row; r < first_row + rows; ++r)
    for (int c = first_col; c < first_col + cols; ++c)
      if ((code_at(r, c) & 7) != 0) largest = std::max<int>(largest, scale_at(r, c));
  const int exponent = largest < 0 ? 0 : largest - 127 - kHeadroom;
  for (int r = first_row; r < first_row + rows; ++r) {
    std::byte* to = target.codes + target.row_of(r) * static_cast<std::size_t>(target.cols);
    for (int c = first_col; c < first_col + cols; ++c) {
      const std::uint8_t code = code_at(r, c);
      const int shift = (code & 7) == 0 ? 0 : scale_at(r, c) - 127 - exponent;
      const float wanted = std::ldexp(e2m1_to_float(code), shift);
      const std::uint8_t e4m3 = float_to_e4m3(wanted);
      if (largest == kUe8m0Nan || e4m3_to_float(e4m3) != wanted) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{}: MXFP4 cannot become fp8 exactly: in the 128x128 block at row "
                                "{}, column {} the UE8M0 scales reach from {} to {}; mxfp4 works",
                                source.where, first_row, first_col, scale_at(r, c), largest));
      }
      to[c] = static_cast<std::byte>(e4m3);
    }
  }
  store_scale(target, first_row / kScaleGroup, first_col / kScaleGroup, std::ldexp(1.0F, exponent));
}

void rebase(const MatrixSource& source, const MatrixTarget& target) {
  for (int r = 0; r < source.rows; r += kScaleGroup)
    for (int c = 0; c < source.cols; c += kScaleGroup) rebase_block(source, target, r, c);
}

}  // namespace

bool convertible(StoredFormat from, Precision to) {
  switch (from) {
    case StoredFormat::bf16:
      return to == Precision::bf16 || to == Precision::fp8;
    case StoredFormat::fp8_block_128:
      return to == Precision::fp8;
    case StoredFormat::mxfp4:
      return to == Precision::mxfp4 || to == Precision::mxfp8_mxfp4 || to == Precision::fp8;
  }
  return false;
}

Precision precision_of(StoredFormat from) {
  switch (from) {
    case StoredFormat::bf16:
      return Precision::bf16;
    case StoredFormat::fp8_block_128:
      return Precision::fp8;
    case StoredFormat::mxfp4:
      return Precision::mxfp4;
  }
  return Precision::fp8;
}

void require_convertible(StoredFormat from, Precision to, const std::string& where) {
  if (convertible(from, to)) return;
  // Fewer bits than asked for are nearest in fp8, where BF16 can be quantised; otherwise the format
  // that the checkpoint has.
  const Precision nearest = from == StoredFormat::bf16 ? Precision::fp8 : precision_of(from);
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: {} weights cannot be loaded as {}; the nearest that works is {}",
                          where, name(from), name(to), name(nearest)));
}

std::size_t MatrixTarget::row_of(int row) const {
  switch (matrix) {
    case Matrix::gate:
      return static_cast<std::size_t>(interleaved_row(row, rows));
    case Matrix::up:
      return static_cast<std::size_t>(interleaved_row(rows + row, rows));
    case Matrix::down:
      break;
  }
  return static_cast<std::size_t>(row);
}

void convert_matrix(const MatrixSource& source, const MatrixTarget& target,
                    ConversionScratch& scratch) {
  require_convertible(source.format, target.precision, source.where);
  const bool same = source.format == StoredFormat::mxfp4
                        ? target.precision != Precision::fp8
                        : precision_of(source.format) == target.precision;
  if (!same) {
    if (source.format == StoredFormat::bf16) {
      quantise(source, target, scratch);
    } else {
      rebase(source, target);
    }
    return;
  }
  copy_rows(source, target);
  if (source.format == StoredFormat::fp8_block_128) copy_block_scales(source, target);
  if (source.format == StoredFormat::mxfp4) copy_group_scales(source, target);
}

}  // namespace megamoe
