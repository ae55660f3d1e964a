#pragma once

#include <cstddef>

namespace megamoe::ref {

/// Weight rows that `dot_rows` takes at once.
inline constexpr int kDotRows = 4;

/// out[t * out_stride + r] = sum over k of x[t * size + k] * w[r * size + k], for `tokens` rows of
/// x and kDotRows rows of w; size is even. Even and odd k are summed apart, in ascending order, and
/// the two sums are added last: the result of a token never depends on the tokens beside it.
void dot_rows(const double* x, int tokens, const double* w, int size, double* out,
              std::size_t out_stride);

}  // namespace megamoe::ref
