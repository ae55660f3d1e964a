#include <cmath>
#include <cstring>

#include "numerics/activation.hpp"
#include "numerics/quantize.hpp"
#include "ref/block.hpp"
#include "ref/decode.hpp"
#include "ref/tensor_core.hpp"

namespace megamoe::ref {
namespace {

using Values = std::vector<double>;

/// How far o moves, relatively, when a code of its row of h changed: by the truncations of a block
/// of 128 channels. Each of 4 instructions truncates 33 terms at 2^-13 of the largest: about
/// sqrt(132) * 2^-14 of it, below 2^-10; four times that for sums in which the largest term
/// cancels.
constexpr double kChangedTruncation = 0x1p-8;

/// x W^T + bias: x [tokens, channels], W [rows, channels] by `codes_of_row(row)`.
template <class CodesOfRow, class Bias>
Values linear(const TensorCoreRows& x, std::size_t tokens, int rows, CodesOfRow codes_of_row,
              Bias bias) {
  const auto out_stride = static_cast<std::size_t>(rows);
  Values out(tokens * out_stride);
  TensorCoreRows w(1, x.channels());
  for (int row = 0; row < rows; ++row) {
    const ScaledCodes stored = codes_of_row(row);
    w.set(0, stored.codes, stored.scales);
    const auto added = static_cast<float>(bias(row));
    for (std::size_t t = 0; t < tokens; ++t)
      out[t * out_stride + static_cast<std::size_t>(row)] = tensor_core_dot(x, t, w, 0) + added;
  }
  return out;
}

TensorCoreRows gather_x(const Input& input, std::span<const Row> rows, const Block& block) {
  const Problem& p = input.problem;
  TensorCoreRows x(block.pairs.size(), static_cast<std::size_t>(p.hidden));
  for (std::size_t t = 0; t < block.pairs.size(); ++t) {
    const Row& row = rows[block.pairs[t].row_idx];
    const ScaledCodes stored =
        x_codes(p, input.ranks[static_cast<std::size_t>(row.rank)], row.token);
    x.set(t, stored.codes, stored.scales);
  }
  return x;
}

/// The L2 norm of column `column` of an expert's w2: what one unit of h there does to o.
double column_norm(const ExpertTensors& tensors, int expert, std::size_t column) {
  double sum = 0;
  for (int row = 0; row < tensors.hidden; ++row) {
    const ScaledCodes stored = w2_codes(tensors, expert, row);
    const double value = e4m3_to_float(std::to_integer<std::uint8_t>(stored.codes[column]));
    float scale;
    std::memcpy(&scale, stored.scales + column / kScaleGroup * sizeof(float), sizeof scale);
    sum += value * scale * value * scale;
  }
  return std::sqrt(sum);
}

/// What the codes of one group may do to o: the sum, over those that another right activation may
/// round the other way, of their steps times their columns' norms.
double doubt_of_group(const float* h, std::size_t first, const ExpertTensors& tensors, int expert) {
  float amax = 0.0F;
  for (int i = 0; i < kScaleGroup; ++i) amax = max_abs(amax, h[i]);
  const GroupScale group = group_scale(amax);
  double doubt = 0;
  for (int i = 0; i < kScaleGroup; ++i) {
    const std::uint8_t low = quantize(h[i] * (1 - kActivationError), group.multiplier);
    const std::uint8_t high = quantize(h[i] * (1 + kActivationError), group.multiplier);
    if (low == high) continue;
    const double step = std::abs(double{e4m3_to_float(high)} - double{e4m3_to_float(low)});
    doubt += step * group.scale * column_norm(tensors, expert, first + static_cast<std::size_t>(i));
  }
  return doubt;
}

/// h of the block's pairs.
struct Activated {
  TensorCoreRows codes;
  Values doubt;  ///< [pairs], as BlockOutput's, without the truncations that change
};

/// Activates g, u [tokens, 2 * intermediate] in FP32 and quantises h.
Activated activated(const Problem& p, const Block& block, const Values& gate_up) {
  const auto width = static_cast<std::size_t>(p.intermediate);
  const std::size_t tokens = block.pairs.size();
  Activated h{TensorCoreRows(tokens, width), Values(tokens, 0.0)};
  std::vector<float> row(width), scales(width / kScaleGroup);
  std::vector<std::uint8_t> codes(width);
  for (std::size_t t = 0; t < tokens; ++t) {
    const double* gate = gate_up.data() + t * 2 * width;
    for (std::size_t i = 0; i < width; ++i)
      row[i] = activate<StandardMath<float>>(p.activation, static_cast<float>(gate[i]),
                                             static_cast<float>(gate[width + i]));
    quantize_row(row.data(), p.intermediate, codes.data(), scales.data());
    h.codes.set(t, std::as_bytes(std::span(codes)).data(), std::as_bytes(std::span(scales)).data());
    for (std::size_t i = 0; i < width; i += kScaleGroup)
      h.doubt[t] += doubt_of_group(row.data() + i, i, *block.tensors, block.expert);
  }
  return h;
}

}  // namespace

BlockOutput tensor_core_output(const Input& input, std::span<const Row> rows, const Block& block) {
  const Problem& p = input.problem;
  const ExpertTensors& tensors = *block.tensors;
  const std::size_t tokens = block.pairs.size();
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const Values gate_up = linear(
      gather_x(input, rows, block), tokens, 2 * p.intermediate,
      [&](int row) { return w1_codes(tensors, block.expert, row); },
      [&](int row) { return bias_1(tensors, block.expert, row); });
  const Activated h = activated(p, block, gate_up);
  BlockOutput out;
  out.o = linear(
      h.codes, tokens, p.hidden, [&](int row) { return w2_codes(tensors, block.expert, row); },
      [&](int row) { return bias_2(tensors, block.expert, row); });
  out.doubt = h.doubt;
  for (std::size_t t = 0; t < tokens; ++t) {
    if (out.doubt[t] == 0) continue;
    double norm = 0;
    for (std::size_t c = 0; c < hidden; ++c) norm += out.o[t * hidden + c] * out.o[t * hidden + c];
    out.doubt[t] += kChangedTruncation * std::sqrt(norm);
  }
  return out;
}

}  // namespace megamoe::ref
