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

double row_relative_l2(double difference, double reference, double both) {
  if (!std::isfinite(both)) return kInfinity;
  if (difference == 0) return 0;
  return std::sqrt(difference / reference);  // infinity for a zero reference
}

}  // namespace

Difference compare(std::span<const std::uint16_t> y, std::span<const std::uint16_t> y_ref,
                   int hidden) {
  if (hidden < 1 || y.size() != y_ref.size() || y.size() % static_cast<std::size_t>(hidden) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("compare: y has {} values and the reference {}; both must be the same "
                            "number of rows of hidden = {}",
                            y.size(), y_ref.size(), hidden));
  }
  Difference result;
  double total_difference = 0;
  double total_norms = 0;
  const std::size_t width = static_cast<std::size_t>(hidden);
  for (std::size_t begin = 0; begin < y.size(); begin += width) {
    double difference = 0;
    double norm = 0;
    double reference = 0;
    for (std::size_t i = begin; i < begin + width; ++i) {
      const double a = bf16_to_float(y[i]);
      const double b = bf16_to_float(y_ref[i]);
      difference += (a - b) * (a - b);
      norm += a * a;
      reference += b * b;
    }
    const double relative = row_relative_l2(difference, reference, norm + reference);
    if (result.worst_row < 0 || relative > result.worst_row_relative_l2) {
      result.worst_row = static_cast<int>(begin / width);
      result.worst_row_relative_l2 = relative;
    }
    total_difference += difference;
    total_norms += norm + reference;
  }
  if (!std::isfinite(total_norms)) {
    result.diff = kInfinity;
  } else if (total_norms > 0) {
    result.diff = total_difference / total_norms;
  }
  return result;
}

}  // namespace megamoe::ref
