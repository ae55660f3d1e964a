#include "ref/decode.hpp"

#include <cstring>
#include <vector>

#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/quantize.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe::ref {
namespace {

std::uint8_t byte_at(const std::byte* base, std::size_t index) {
  return std::to_integer<std::uint8_t>(base[index]);
}

template <class T>
T load(const std::byte* base, std::size_t index) {
  T value;
  std::memcpy(&value, base + index * sizeof(T), sizeof(T));
  return value;
}

/// Values first .. first + count of a BF16 tensor.
void decode_bf16(const std::byte* data, std::size_t first, int count, double* values) {
  for (int i = 0; i < count; ++i)
    values[i] = bf16_to_float(load<std::uint16_t>(data, first + static_cast<std::size_t>(i)));
}

/// As decode_bf16, e4m3 with one FP32 scale per 128 values; scales from `first_scale` on.
void decode_e4m3(const std::byte* data, std::size_t first, const std::byte* scales,
                 std::size_t first_scale, int count, double* values) {
  for (int group = 0; group < count / kScaleGroup; ++group) {
    const double scale = load<float>(scales, first_scale + static_cast<std::size_t>(group));
    for (int i = group * kScaleGroup; i < (group + 1) * kScaleGroup; ++i)
      values[i] = kE4m3Values[byte_at(data, first + static_cast<std::size_t>(i))] * scale;
  }
}

/// As decode_e4m3, with one UE8M0 scale per 32 values.
void decode_mx_e4m3(const std::byte* data, std::size_t first, const std::byte* scales, int count,
                    double* values) {
  for (int i = 0; i < count; ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i);
    const double scale = ue8m0_to_float(byte_at(scales, at / kMxScaleGroup));
    values[i] = kE4m3Values[byte_at(data, at)] * scale;
  }
}

/// Packed e2m1, low nibble first, with one UE8M0 scale per 32 values; `first` is a multiple of 32.
void decode_e2m1(const std::byte* data, std::size_t first, const std::byte* scales, int count,
                 double* values) {
  for (int group = 0; group < count; group += kMxScaleGroup) {
    const std::size_t at = first + static_cast<std::size_t>(group);
    const double scale = ue8m0_to_float(byte_at(scales, at / kMxScaleGroup));
    for (int i = 0; i < kMxScaleGroup; i += 2) {
      const std::uint8_t pair = byte_at(data, (at + static_cast<std::size_t>(i)) / 2);
      values[group + i] = kE2m1Values[pair & 15U] * scale;
      values[group + i + 1] = kE2m1Values[pair >> 4] * scale;
    }
  }
}

/// Row `row` of a weight matrix [.., cols]; `block_row` is the row of its 128x128 scales.
void decode_weights(Precision precision, const std::byte* data, const std::byte* scales,
                    std::size_t row, std::size_t block_row, int cols, double* values) {
  const std::size_t width = static_cast<std::size_t>(cols);
  switch (precision) {
    case Precision::fp8:
      return decode_e4m3(data, row * width, scales, block_row * (width / kScaleGroup), cols,
                         values);
    case Precision::bf16:
      return decode_bf16(data, row * width, cols, values);
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      return decode_e2m1(data, row * width, scales, cols, values);
  }
}

/// The row of all experts' w1 (or b1) that holds logical row `row` of `expert`.
std::size_t stored_row(const ExpertTensors& t, int expert, int row) {
  const int stored =
      t.w1_order == W1Order::interleaved_8 ? interleaved_row(row, t.intermediate) : row;
  return static_cast<std::size_t>(expert) * 2 * static_cast<std::size_t>(t.intermediate) +
         static_cast<std::size_t>(stored);
}

/// The row of all experts' 128x128 scales that belongs to row `row` of `expert`'s w1: these stay
/// in logical order, gate blocks, then up blocks.
std::size_t w1_block_row(const ExpertTensors& t, int expert, int row) {
  return static_cast<std::size_t>(expert) * 2 *
             static_cast<std::size_t>(t.intermediate / kScaleGroup) +
         static_cast<std::size_t>(row / kScaleGroup);
}

/// Row `row` of codes [.., cols] with row `scale_row` of their scales [.., cols / 128].
ScaledCodes codes_of(const std::byte* data, std::size_t row, const std::byte* scales,
                     std::size_t scale_row, int cols) {
  const auto width = static_cast<std::size_t>(cols);
  return {data + row * width, scales + scale_row * (width / kScaleGroup) * sizeof(float)};
}

}  // namespace

ScaledCodes x_codes(const Problem& problem, const RankInput& input, int token) {
  const auto row = static_cast<std::size_t>(token);
  return codes_of(input.x, row, input.x_scales, row, problem.hidden);
}

ScaledCodes w1_codes(const ExpertTensors& t, int expert, int row) {
  return codes_of(t.w1, stored_row(t, expert, row), t.w1_scales, w1_block_row(t, expert, row),
                  t.hidden);
}

ScaledCodes w2_codes(const ExpertTensors& t, int expert, int row) {
  const std::size_t at = static_cast<std::size_t>(expert) * static_cast<std::size_t>(t.hidden) +
                         static_cast<std::size_t>(row);
  return codes_of(t.w2, at, t.w2_scales, at / kScaleGroup, t.intermediate);
}

void decode_x(const Problem& problem, const RankInput& input, int token, double* values) {
  const int hidden = problem.hidden;
  const std::size_t first = static_cast<std::size_t>(token) * static_cast<std::size_t>(hidden);
  switch (problem.precision) {
    case Precision::fp8:
    case Precision::mxfp4:
      return decode_e4m3(input.x, first, input.x_scales, first / kScaleGroup, hidden, values);
    case Precision::bf16:
      return decode_bf16(input.x, first, hidden, values);
    case Precision::mxfp8_mxfp4:
      return decode_mx_e4m3(input.x, first, input.x_scales, hidden, values);
  }
}

void decode_w1(const ExpertTensors& t, int expert, int row, double* values) {
  decode_weights(t.precision, t.w1, t.w1_scales, stored_row(t, expert, row),
                 w1_block_row(t, expert, row), t.hidden, values);
}

void decode_w2(const ExpertTensors& t, int expert, int row, double* values) {
  const std::size_t rows = static_cast<std::size_t>(t.hidden);
  const std::size_t at = static_cast<std::size_t>(expert) * rows + static_cast<std::size_t>(row);
  decode_weights(t.precision, t.w2, t.w2_scales, at, at / kScaleGroup, t.intermediate, values);
}

double bias_1(const ExpertTensors& t, int expert, int row) {
  return t.b1 == nullptr ? 0.0 : t.b1[stored_row(t, expert, row)];
}

double bias_2(const ExpertTensors& t, int expert, int row) {
  if (t.b2 == nullptr) return 0.0;
  return t.b2[static_cast<std::size_t>(expert) * static_cast<std::size_t>(t.hidden) +
              static_cast<std::size_t>(row)];
}

void requantise_h(Precision precision, const float* h, int intermediate, double* values) {
  if (precision == Precision::bf16) {
    for (int i = 0; i < intermediate; ++i) values[i] = bf16_to_float(float_to_bf16(h[i]));
    return;
  }
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(intermediate));
  if (precision == Precision::mxfp8_mxfp4) {
    std::vector<std::uint8_t> scales(codes.size() / kMxScaleGroup);
    quantize_mx_row(h, intermediate, codes.data(), scales.data());
    for (std::size_t i = 0; i < codes.size(); ++i)
      values[i] = double{kE4m3Values[codes[i]]} * ue8m0_to_float(scales[i / kMxScaleGroup]);
    return;
  }
  std::vector<float> scales(codes.size() / kScaleGroup);
  quantize_row(h, intermediate, codes.data(), scales.data());
  for (std::size_t i = 0; i < codes.size(); ++i)
    values[i] = double{kE4m3Values[codes[i]]} * scales[i / kScaleGroup];
}

}  // namespace megamoe::ref
