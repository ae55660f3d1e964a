#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ref/compare.hpp"
#include "ref/reference.hpp"

// Bounds on y from a GPU. The only place for them: tests and tools ask here.
//
// A Hopper GPU's FP8 sums differ from exact ones by about 2^-13 of a block's largest product, which
// flips codes of h: by how much y then differs from the exact reference depends on the case (how
// many codes, how heavy the heaviest), from 1e-6 to 1e-4 over the whole output and up to some 5e-2
// in a row. What a GPU computes is known bit for bit, though, but for the last bits of the
// activation's exponential. So:
//   - y is compared with the model of the tensor core, within bounds that leave room for those last
//     bits only;
//   - the bounds against the exact reference follow from that case's own distance between model and
//     reference, by the triangle inequality.

namespace megamoe::ref {

struct Bounds {
  double diff = 0;       ///< of Difference::diff
  double worst_row = 0;  ///< of Difference::worst_row_relative_l2
};

/// How y agrees with the model of the tensor core.
struct Agreement {
  double diff = 0;        ///< over everything, as Difference::diff
  double diff_bound = 0;  ///< what is allowed: see kRoundingDiff, plus the doubtful codes
  /// The largest |y - model| of a row in L2, as a part of what is allowed there: at most 1 is good.
  /// Infinity where a value is NaN or Inf and its partner is not the same.
  double worst_row_of_allowed = 0;
  int worst_row = -1;

  [[nodiscard]] bool ok() const { return diff <= diff_bound && worst_row_of_allowed <= 1; }
};

/// Compares y [rows, hidden] with the model. Throws Error when the sizes do not fit.
Agreement agree(std::span<const std::uint16_t> y, const TensorCoreOutput& model, int hidden);

/// What bounds_on_gpu never exceeds for `rows` rows, whatever model and reference say: a model that
/// is itself wrong, or doubts everything, must not let everything pass.
Bounds most_on_gpu(std::size_t rows);

/// How far y of a right kernel may be from `exact`, the reference's y [rows, hidden]; at most
/// most_on_gpu.
Bounds bounds_on_gpu(const TensorCoreOutput& model, std::span<const std::uint16_t> exact,
                     int hidden);

/// y of rows, as a GPU gave it, against the model and against the exact reference.
struct GpuCheck {
  Agreement agreement;
  Difference difference;  ///< from the exact reference
  Bounds bounds;          ///< on that difference

  [[nodiscard]] bool ok() const {
    return agreement.ok() && difference.diff <= bounds.diff &&
           difference.worst_row_relative_l2 <= bounds.worst_row;
  }
};

/// Checks y BF16 [rows, hidden] of a call with fp8 on a Hopper GPU. Throws Error as run_rows does.
GpuCheck check_gpu(std::span<const std::uint16_t> y, const Input& input,
                   const LayerWeights& weights, std::span<const Row> rows, int threads = 1);

/// The numbers of a check, in one line.
std::string text(const GpuCheck& check);

}  // namespace megamoe::ref
