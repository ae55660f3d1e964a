#include "host/checkpoint/matrix_source.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

/// Names that stand before the family's own: a text model, or one that also sees.
constexpr std::array<const char*, 2> kPrefixes{"", "language_model."};
constexpr const char* kPlainWeight = ".weight";

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Elements of one row of scales.
std::size_t scale_count(StoredFormat format, int cols) {
  const int group = format == StoredFormat::mxfp4 ? kMxScaleGroup : kScaleGroup;
  return static_cast<std::size_t>(ceil_div(cols, group));
}

MatrixSource bf16_matrix(const TensorView& weight, int rows, int cols) {
  const std::array<std::int64_t, 2> shape{rows, cols};
  expect(weight, {DType::bf16}, shape);
  MatrixSource source{
      .format = StoredFormat::bf16, .where = weight.where(), .rows = rows, .cols = cols};
  source.codes = weight.bytes.data();
  source.code_stride = source.row_bytes();
  return source;
}

MatrixSource fp8_matrix(Checkpoint& checkpoint, const FamilyRow& row, const std::string& base,
                        const TensorView& weight, int rows, int cols) {
  const std::array<std::int64_t, 2> shape{rows, cols};
  expect(weight, {DType::f8_e4m3}, shape);
  if (!checkpoint.contains(base + row.fp8_scale) && checkpoint.contains(base + ".weight_scale")) {
    const TensorView other = checkpoint.at(base + ".weight_scale");
    throw Error(ErrorCode::invalid_file,
                fmt::format("{}: expected one scale per 128x128 block in {}{}, found {} of {}; a "
                            "BF16 checkpoint of the model can be quantised at load",
                            weight.where(), base, row.fp8_scale, other.name,
                            describe(other.dtype, other.shape)));
  }
  const TensorView scale = checkpoint.at(base + row.fp8_scale);
  const std::array<std::int64_t, 2> blocks{ceil_div(rows, kScaleGroup),
                                           ceil_div(cols, kScaleGroup)};
  expect(scale, {DType::f32, DType::bf16, DType::f8_e8m0}, blocks);
  MatrixSource source{
      .format = StoredFormat::fp8_block_128, .where = weight.where(), .rows = rows, .cols = cols};
  source.codes = weight.bytes.data();
  source.code_stride = source.row_bytes();
  source.scales = scale.bytes.data();
  source.scale_dtype = scale.dtype;
  source.scale_stride = scale_count(source.format, cols) * dtype_bytes(scale.dtype);
  return source;
}

void require_groups_of_32(const TensorView& weight, int cols) {
  if (cols % kMxScaleGroup == 0) return;
  throw Error(ErrorCode::invalid_file,
              fmt::format("{}: expected a multiple of 32 columns for MXFP4, found {}",
                          weight.where(), cols));
}

MatrixSource mxfp4_matrix(Checkpoint& checkpoint, const FamilyRow& row, const std::string& base,
                          const TensorView& weight, int rows, int cols) {
  require_groups_of_32(weight, cols);
  const std::array<std::int64_t, 2> shape{rows, cols / 2};
  expect(weight, {DType::u8, DType::i8}, shape);
  const TensorView scale = checkpoint.at(base + row.mxfp4_scale);
  const std::array<std::int64_t, 2> groups{rows, cols / kMxScaleGroup};
  expect(scale, {DType::f8_e8m0, DType::u8}, groups);
  MatrixSource source{
      .format = StoredFormat::mxfp4, .where = weight.where(), .rows = rows, .cols = cols};
  source.codes = weight.bytes.data();
  source.code_stride = source.row_bytes();
  source.scales = scale.bytes.data();
  source.scale_dtype = DType::f8_e8m0;
  source.scale_stride = scale_count(source.format, cols);
  return source;
}

/// One expert of a fused MXFP4 tensor [experts, all_rows, cols / 32, 16]: every step-th row from
/// first_row on.
MatrixSource fused_matrix(Checkpoint& checkpoint, const FamilyRow& row, const std::string& base,
                          int expert, int num_experts, int all_rows, int cols, int first_row,
                          int step) {
  const TensorView blocks = checkpoint.at(base + row.mxfp4_weight);
  const TensorView scales = checkpoint.at(base + row.mxfp4_scale);
  require_groups_of_32(blocks, cols);
  const std::array<std::int64_t, 4> shape{num_experts, all_rows, cols / kMxScaleGroup,
                                          kMxScaleGroup / 2};
  expect(blocks, {DType::u8}, shape);
  expect(scales, {DType::u8, DType::f8_e8m0}, std::span(shape).first(3));
  MatrixSource source{.format = StoredFormat::mxfp4,
                      .where = blocks.where(),
                      .rows = all_rows / step,
                      .cols = cols};
  const std::size_t code_bytes = source.row_bytes();
  const std::size_t scale_bytes = scale_count(source.format, cols);
  const auto row_index = static_cast<std::size_t>(expert) * static_cast<std::size_t>(all_rows) +
                         static_cast<std::size_t>(first_row);
  source.codes = blocks.bytes.data() + row_index * code_bytes;
  source.code_stride = code_bytes * static_cast<std::size_t>(step);
  source.scales = scales.bytes.data() + row_index * scale_bytes;
  source.scale_dtype = DType::f8_e8m0;
  source.scale_stride = scale_bytes * static_cast<std::size_t>(step);
  return source;
}

/// One expert's biases out of [experts, all_rows], or none when the checkpoint has no such tensor.
BiasSource fused_bias(Checkpoint& checkpoint, const std::string& tensor, int expert,
                      int num_experts, int all_rows, int first_row, int step) {
  const auto bias = checkpoint.find(tensor);
  if (!bias) return {};
  const std::array<std::int64_t, 2> shape{num_experts, all_rows};
  expect(*bias, {DType::bf16, DType::f32}, shape);
  const std::size_t element = dtype_bytes(bias->dtype);
  const auto first = static_cast<std::size_t>(expert) * static_cast<std::size_t>(all_rows) +
                     static_cast<std::size_t>(first_row);
  return {.values = bias->bytes.data() + first * element,
          .stride = element * static_cast<std::size_t>(step),
          .count = all_rows / step,
          .dtype = bias->dtype};
}

}  // namespace

const char* name(StoredFormat format) {
  switch (format) {
    case StoredFormat::bf16:
      return "BF16";
    case StoredFormat::fp8_block_128:
      return "FP8";
    case StoredFormat::mxfp4:
      return "MXFP4";
  }
  return "unknown";
}

float load_float(const std::byte* address, DType dtype) {
  if (dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, address, sizeof value);
    return value;
  }
  if (dtype == DType::bf16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, address, sizeof bits);
    return bf16_to_float(bits);
  }
  return ue8m0_to_float(std::to_integer<std::uint8_t>(*address));
}

float BiasSource::at(int index) const {
  return load_float(values + static_cast<std::size_t>(index) * stride, dtype);
}

std::size_t MatrixSource::row_bytes() const {
  const auto columns = static_cast<std::size_t>(cols);
  switch (format) {
    case StoredFormat::bf16:
      return columns * 2;
    case StoredFormat::fp8_block_128:
      return columns;
    case StoredFormat::mxfp4:
      return columns / 2;
  }
  return 0;
}

MatrixSource MatrixSource::slice(int row, int num_rows, int col, int num_cols) const {
  int row_unit = 1;
  int col_unit = 1;
  if (format == StoredFormat::fp8_block_128) row_unit = col_unit = kScaleGroup;
  if (format == StoredFormat::mxfp4) col_unit = kMxScaleGroup;
  const auto whole = [](int first, int count, int all, int unit) {
    return first % unit == 0 && (count % unit == 0 || first + count == all);
  };
  if (!whole(row, num_rows, rows, row_unit) || !whole(col, num_cols, cols, col_unit)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: cannot be cut at rows [{}, {}), columns [{}, {}): {} shares scales "
                    "in blocks of {}x{}",
                    where, row, row + num_rows, col, col + num_cols, name(format), row_unit,
                    col_unit));
  }
  MatrixSource part = *this;
  part.rows = num_rows;
  part.cols = num_cols;
  MatrixSource before = *this;  // the columns before the slice, for their bytes
  before.cols = col;
  part.codes += static_cast<std::size_t>(row) * code_stride + before.row_bytes();
  if (scales != nullptr) {
    const std::size_t element = dtype_bytes(scale_dtype);
    part.scales += static_cast<std::size_t>(row / row_unit) * scale_stride +
                   static_cast<std::size_t>(col / col_unit) * element;
  }
  return part;
}

MatrixSource find_matrix(Checkpoint& checkpoint, const FamilyRow& row, const std::string& base,
                         int rows, int cols) {
  auto weight = checkpoint.find(base + kPlainWeight);
  if (!weight) weight = checkpoint.find(base + row.mxfp4_weight);
  if (!weight) weight = checkpoint.at(base + kPlainWeight);
  switch (weight->dtype) {
    case DType::bf16:
      return bf16_matrix(*weight, rows, cols);
    case DType::f8_e4m3:
      return fp8_matrix(checkpoint, row, base, *weight, rows, cols);
    case DType::u8:
    case DType::i8:
      return mxfp4_matrix(checkpoint, row, base, *weight, rows, cols);
    default:
      throw Error(ErrorCode::invalid_file,
                  fmt::format("{}: expected BF16, F8_E4M3 or MXFP4 codes in U8 or I8, found {}",
                              weight->where(), describe(weight->dtype, weight->shape)));
  }
}

ExpertSource find_expert(Checkpoint& checkpoint, const FamilyRow& row, const std::string& prefix,
                         int layer, int expert, int num_experts, int hidden, int intermediate) {
  const auto base = [&](Matrix matrix) { return expert_name(row, prefix, layer, expert, matrix); };
  if (!row.fused) {
    return {.gate = find_matrix(checkpoint, row, base(Matrix::gate), intermediate, hidden),
            .up = find_matrix(checkpoint, row, base(Matrix::up), intermediate, hidden),
            .down = find_matrix(checkpoint, row, base(Matrix::down), hidden, intermediate)};
  }
  const auto matrix = [&](Matrix which, int all_rows, int cols, int first, int step) {
    return fused_matrix(checkpoint, row, base(which), expert, num_experts, all_rows, cols, first,
                        step);
  };
  const auto bias = [&](Matrix which, int all_rows, int first, int step) {
    return fused_bias(checkpoint, base(which) + "_bias", expert, num_experts, all_rows, first,
                      step);
  };
  const int both = 2 * intermediate;
  return {.gate = matrix(Matrix::gate, both, hidden, 0, 2),
          .up = matrix(Matrix::up, both, hidden, 1, 2),
          .down = matrix(Matrix::down, hidden, intermediate, 0, 1),
          .gate_bias = bias(Matrix::gate, both, 0, 2),
          .up_bias = bias(Matrix::up, both, 1, 2),
          .down_bias = bias(Matrix::down, hidden, 0, 1)};
}

ExpertSource find_shared_expert(Checkpoint& checkpoint, const FamilyRow& row,
                                const std::string& prefix, int layer, int index, int num_shared,
                                int hidden, int intermediate) {
  const auto whole = [&](Matrix matrix, int rows, int cols) {
    return find_matrix(checkpoint, row, shared_name(row, prefix, layer, matrix), rows, cols);
  };
  const int all = num_shared * intermediate;
  const int first = index * intermediate;
  return {.gate = whole(Matrix::gate, all, hidden).slice(first, intermediate, 0, hidden),
          .up = whole(Matrix::up, all, hidden).slice(first, intermediate, 0, hidden),
          .down = whole(Matrix::down, hidden, all).slice(0, hidden, first, intermediate)};
}

std::optional<std::string> find_prefix(const Checkpoint& checkpoint, const FamilyRow& row,
                                       int layer) {
  for (const char* prefix : kPrefixes) {
    const std::string base = expert_name(row, prefix, layer, 0, Matrix::gate);
    if (checkpoint.contains(base + kPlainWeight) || checkpoint.contains(base + row.mxfp4_weight))
      return prefix;
  }
  return {};
}

}  // namespace megamoe
