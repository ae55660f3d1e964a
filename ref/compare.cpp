#include "ref/compare.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative_l2(const RowDistance& row) {
  if (!std::isfinite(row.energy)) return kInfinity;
  if (row.squared == 0) return 0;
  return std::sqrt(row.squared / row.reference);  // infinity for a zero reference
}

}  // namespace

RowDistance row_distance(const std::uint16_t* y, const std::uint16_t* reference,
                         std::size_t count) {
  RowDistance d;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = bf16_to_float(y[i]), b = bf16_to_float(reference[i]);
    if (!std::isfinite(a) || !std::isfinite(b)) {
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      ++(same ? d.same_non_finite : d.wrong_non_finite);
      continue;
    }
    d.squared += (a - b) * (a - b);
    d.energy += a * a + b * b;
    d.reference += b * b;
  }
  if (d.wrong_non_finite > 0) d.squared = d.energy = kInfinity;
  return d;
}

Difference compare(std::span<const std::uint16_t> y, std::span<const std::uint16_t> y_ref,
                   int hidden) {
  if (hidden < 1 || y.size() != y_ref.size() || y.size() % static_cast<std::size_t>(hidden) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("compare: y has {} values and the reference {}; both must be the same "
                            "number of rows of hidden = {}",
                            y.size(), y_ref.size(), hidden));
  }
  Difference result;
  double squared = 0, energy = 0;
  const auto width = static_cast<std::size_t>(hidden);
  for (std::size_t begin = 0; begin < y.size(); begin += width) {
    const RowDistance row = row_distance(y.data() + begin, y_ref.data() + begin, width);
    const double relative = relative_l2(row);
    if (result.worst_row < 0 || relative > result.worst_row_relative_l2) {
      result.worst_row = static_cast<int>(begin / width);
      result.worst_row_relative_l2 = relative;
    }
    squared += row.squared;
    energy += row.energy;
    result.same_non_finite += row.same_non_finite;
    result.wrong_non_finite += row.wrong_non_finite;
  }
  if (!std::isfinite(energy)) {
    result.diff = kInfinity;
  } else if (energy > 0) {
    result.diff = squared / energy;
  }
  return result;
}

}  // namespace megamoe::ref
