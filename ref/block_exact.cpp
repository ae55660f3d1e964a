#include <utility>

#include "numerics/activation.hpp"
#include "ref/block.hpp"
#include "ref/decode.hpp"
#include "ref/dot.hpp"

namespace megamoe::ref {
namespace {

using Values = std::vector<double>;

/// x W^T + bias: x [tokens, cols], W [rows, cols] by `decode_row(row, values)`; rows is a multiple
/// of 4.
template <class DecodeRow, class Bias>
Values linear(const Values& x, std::size_t tokens, int rows, int cols, DecodeRow decode_row,
              Bias bias) {
  const auto out_stride = static_cast<std::size_t>(rows);
  Values out(tokens * out_stride);
  Values w(static_cast<std::size_t>(kDotRows) * static_cast<std::size_t>(cols));
  for (int row = 0; row < rows; row += kDotRows) {
    for (int r = 0; r < kDotRows; ++r)
      decode_row(row + r, w.data() + static_cast<std::ptrdiff_t>(r) * cols);
    dot_rows(x.data(), static_cast<int>(tokens), w.data(), cols, out.data() + row, out_stride);
  }
  for (std::size_t t = 0; t < tokens; ++t)
    for (int row = 0; row < rows; ++row)
      out[t * out_stride + static_cast<std::size_t>(row)] += bias(row);
  return out;
}

/// Activates g, u [tokens, 2 * intermediate] and rounds h as it enters the second matrix.
Values activated(const Problem& p, const Values& gate_up, std::size_t tokens) {
  const auto width = static_cast<std::size_t>(p.intermediate);
  Values h(tokens * width);
  std::vector<float> row(width);
  for (std::size_t t = 0; t < tokens; ++t) {
    const double* gate = gate_up.data() + t * 2 * width;
    for (std::size_t i = 0; i < width; ++i)
      row[i] = static_cast<float>(
          activate<StandardMath<double>>(p.activation, gate[i], gate[width + i]));
    requantise_h(p.precision, row.data(), p.intermediate, h.data() + t * width);
  }
  return h;
}

}  // namespace

BlockOutput exact_output(const Input& input, std::span<const Row> rows, const Block& block) {
  const Problem& p = input.problem;
  const ExpertTensors& tensors = *block.tensors;
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const std::size_t tokens = block.pairs.size();
  Values x(tokens * hidden);
  for (std::size_t t = 0; t < tokens; ++t) {
    const Row& row = rows[block.pairs[t].row_idx];
    decode_x(p, input.ranks[static_cast<std::size_t>(row.rank)], row.token, x.data() + t * hidden);
  }
  const Values gate_up = linear(
      x, tokens, 2 * p.intermediate, p.hidden,
      [&](int row, double* values) { decode_w1(tensors, block.expert, row, values); },
      [&](int row) { return bias_1(tensors, block.expert, row); });
  const Values h = activated(p, gate_up, tokens);
  Values o = linear(
      h, tokens, p.hidden, p.intermediate,
      [&](int row, double* values) { decode_w2(tensors, block.expert, row, values); },
      [&](int row) { return bias_2(tensors, block.expert, row); });
  return {std::move(o), Values(tokens, 0.0)};
}

}  // namespace megamoe::ref
