#include "cli/unfused/check_bounds.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "ref/gpu_bounds.hpp"

namespace megamoe::cli::unfused {

ChainBounds ChainBounds::from_case(const ref::TensorCoreOutput& model,
                                   std::span<const std::uint16_t> exact, int hidden) {
  const ref::Bounds of_model = ref::bounds_on_gpu(model, exact, hidden);
  ChainBounds bounds;
  bounds.diff = std::max(bounds.diff, 4 * of_model.diff);
  bounds.worst_row = std::max(bounds.worst_row, 2 * of_model.worst_row);
  return bounds;
}

ref::Difference require_close(std::span<const std::uint16_t> y,
                              std::span<const std::uint16_t> exact, int hidden,
                              const ChainBounds& bounds, const std::string& what) {
  const ref::Difference difference = ref::compare(y, exact, hidden);
  // Written so that a NaN is refused too.
  const bool close =
      difference.diff <= bounds.diff && difference.worst_row_relative_l2 <= bounds.worst_row;
  if (close) return difference;
  throw Error(ErrorCode::fault,
              fmt::format("the unfused chain's y differs from {}: diff {:.2e} (bound {:.2e}), row "
                          "{} of those compared off by {:.2e} (bound {:.2e}); its time is not "
                          "reported",
                          what, difference.diff, bounds.diff, difference.worst_row,
                          difference.worst_row_relative_l2, bounds.worst_row));
}

std::vector<int> sampled_tokens(int num_tokens, int most) {
  const int count = std::min(num_tokens, most);
  std::vector<int> tokens;
  for (int i = 0; i < count; ++i) {
    const long last = num_tokens - 1;
    tokens.push_back(count == 1 ? 0 : static_cast<int>(last * i / (count - 1)));
  }
  return tokens;
}

}  // namespace megamoe::cli::unfused
