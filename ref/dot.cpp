#include "ref/dot.hpp"

namespace megamoe::ref {
namespace {

/// kTokens rows of x by kDotRows rows of w: the sums stay in registers.
template <int kTokens>
void dot_tile(const double* x, const double* w, std::size_t size, double* out,
              std::size_t out_stride) {
  double sums[kTokens][kDotRows][2] = {};
  for (std::size_t k = 0; k < size; k += 2) {
    for (int t = 0; t < kTokens; ++t)
      for (int r = 0; r < kDotRows; ++r)
        for (std::size_t lane = 0; lane < 2; ++lane)
          sums[t][r][lane] += x[static_cast<std::size_t>(t) * size + k + lane] *
                              w[static_cast<std::size_t>(r) * size + k + lane];
  }
  for (int t = 0; t < kTokens; ++t)
    for (int r = 0; r < kDotRows; ++r)
      out[static_cast<std::size_t>(t) * out_stride + static_cast<std::size_t>(r)] =
          sums[t][r][0] + sums[t][r][1];
}

}  // namespace

void dot_rows(const double* x, int tokens, const double* w, int size, double* out,
              std::size_t out_stride) {
  const auto width = static_cast<std::size_t>(size);
  int t = 0;
  for (; t + 2 <= tokens; t += 2) {
    const auto at = static_cast<std::size_t>(t);
    dot_tile<2>(x + at * width, w, width, out + at * out_stride, out_stride);
  }
  if (t < tokens) {
    const auto at = static_cast<std::size_t>(t);
    dot_tile<1>(x + at * width, w, width, out + at * out_stride, out_stride);
  }
}

}  // namespace megamoe::ref
