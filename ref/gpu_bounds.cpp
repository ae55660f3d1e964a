#include "ref/gpu_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe::ref {
namespace {

// The last bits of the activation move a group's scale by an ulp or two of FP32, and o with it by
// about 2^-22. An element of o or y then changes its BF16 rounding with probability 2^-22 / 2^-8,
// by 2^-8 of itself.

/// Of a row's size: a quarter of its energy would have to change its rounding to exceed it.
constexpr double kRoundingOfRow = 0x1p-9;

/// Of the whole output. Expected: (2^-14 + 2^-14) * (2^-8)^2 / 2 = 2^-30. One element of o alone
/// that carries 1 / 64 of the whole output's energy: 2^-16 / 64 / 2 = 2^-23.
constexpr double kRoundingDiff = 0x1p-22;

double allowed_in_row(const TensorCoreOutput& model, std::size_t row) {
  return model.doubt[row] + kRoundingOfRow * model.size[row];
}

void check_sizes(std::size_t values, const TensorCoreOutput& model, int hidden) {
  if (hidden < 1 || values != model.y.size() ||
      values != model.doubt.size() * static_cast<std::size_t>(hidden)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bounds on GPUs: y has {} values, the model {} in {} rows of hidden = {}",
                    values, model.y.size(), model.doubt.size(), hidden));
  }
}

/// Two steps of e4m3 in every code of h: a code is at most 1/8 from its neighbour. A right kernel
/// moves a hundredth of the codes by one step; the worst row seen is off by 1/20.
constexpr double kMostOfRow = 0x1p-2;

/// A hundredth of the codes of h, each off by 1/8, would be (1/8)^2 / 100 / 2 = 0.8e-4 of a whole
/// output of many rows; the most seen is 0.63e-4.
constexpr double kMostDiff = 0x1p-12;

/// The smaller one; `most` for a NaN.
double at_most(double most, double value) { return value < most ? value : most; }

/// What doubtful codes may add to diff.
double doubtful_diff(const TensorCoreOutput& model, double energy) {
  double squared = 0;
  for (const double doubt : model.doubt) squared += doubt * doubt;
  return squared > 0 ? squared / energy : 0;
}

}  // namespace

Agreement agree(std::span<const std::uint16_t> y, const TensorCoreOutput& model, int hidden) {
  check_sizes(y.size(), model, hidden);
  const auto width = static_cast<std::size_t>(hidden);
  Agreement result;
  double squared = 0, energy = 0;
  for (std::size_t row = 0; row < model.doubt.size(); ++row) {
    const RowDistance d = row_distance(y.data() + row * width, model.y.data() + row * width, width);
    squared += d.squared;
    energy += d.energy;
    double of_allowed = std::numeric_limits<double>::infinity();
    if (std::isfinite(d.energy))
      of_allowed = d.squared > 0 ? std::sqrt(d.squared) / allowed_in_row(model, row) : 0;
    if (result.worst_row < 0 || of_allowed > result.worst_row_of_allowed) {
      result.worst_row = static_cast<int>(row);
      result.worst_row_of_allowed = of_allowed;
    }
  }
  result.diff_bound = kRoundingDiff + doubtful_diff(model, energy);
  if (!std::isfinite(energy)) {
    result.diff = std::numeric_limits<double>::infinity();
  } else if (energy > 0) {
    result.diff = squared / energy;
  }
  return result;
}

Bounds bounds_on_gpu(const TensorCoreOutput& model, std::span<const std::uint16_t> exact,
                     int hidden) {
  check_sizes(exact.size(), model, hidden);
  const auto width = static_cast<std::size_t>(hidden);
  Bounds bounds;
  double squared = 0, energy = 0;
  for (std::size_t row = 0; row < model.doubt.size(); ++row) {
    const RowDistance d =
        row_distance(model.y.data() + row * width, exact.data() + row * width, width);
    squared += d.squared;
    energy += d.energy;
    if (d.reference > 0) {
      bounds.worst_row =
          std::max(bounds.worst_row,
                   (std::sqrt(d.squared) + allowed_in_row(model, row)) / std::sqrt(d.reference));
    }
  }
  const double of_model = energy > 0 ? std::sqrt(squared / energy) : 0;
  const double from_model =
      std::sqrt(kRoundingDiff + (energy > 0 ? doubtful_diff(model, energy) : 0));
  bounds.diff = (of_model + from_model) * (of_model + from_model);
  const Bounds most = most_on_gpu(model.doubt.size());
  return {at_most(most.diff, bounds.diff), at_most(most.worst_row, bounds.worst_row)};
}

Bounds most_on_gpu(std::size_t rows) {
  // Of few rows one may be most of the output.
  const double of_one_row = kMostOfRow * kMostOfRow / 2;
  return {kMostDiff + of_one_row / static_cast<double>(std::max<std::size_t>(1, rows)), kMostOfRow};
}

GpuCheck check_gpu(std::span<const std::uint16_t> y, const Input& input,
                   const LayerWeights& weights, std::span<const Row> rows, int threads) {
  const int hidden = input.problem.hidden;
  const TensorCoreOutput model = run_rows_on_tensor_core(input, weights, rows, threads);
  const std::vector<std::uint16_t> exact = run_rows(input, weights, rows, threads);
  return {agree(y, model, hidden), compare(y, exact, hidden), bounds_on_gpu(model, exact, hidden)};
}

std::string text(const GpuCheck& check) {
  const Agreement& a = check.agreement;
  return fmt::format(
      "from the tensor core's model: diff {:.2e} (bound {:.2e}), row {} at {:.2f} of what is "
      "allowed; from the exact reference: diff {:.2e} (bound {:.2e}), row {} off by {:.2e} (bound "
      "{:.2e})",
      a.diff, a.diff_bound, a.worst_row, a.worst_row_of_allowed, check.difference.diff,
      check.bounds.diff, check.difference.worst_row, check.difference.worst_row_relative_l2,
      check.bounds.worst_row);
}

}  // namespace megamoe::ref
