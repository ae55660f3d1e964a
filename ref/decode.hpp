#pragma once

#include "megamoe/weights.hpp"
#include "ref/reference.hpp"

// Rows of activations and weights as doubles. Every code times its scale is exact.

namespace megamoe::ref {

/// A row of e4m3 codes with one FP32 scale per 128.
struct ScaledCodes {
  const std::byte* codes;
  const std::byte* scales;
};

/// Token `token` of `input`, row `row` of `expert`'s w1 and w2 as they are stored; fp8 only, rows
/// as below.
ScaledCodes x_codes(const Problem& problem, const RankInput& input, int token);
ScaledCodes w1_codes(const ExpertTensors& tensors, int expert, int row);
ScaledCodes w2_codes(const ExpertTensors& tensors, int expert, int row);

/// Token `token` of `input`: hidden values.
void decode_x(const Problem& problem, const RankInput& input, int token, double* values);

/// Logical row `row` (gate rows first, then up rows) of expert `expert`'s w1: hidden values.
void decode_w1(const ExpertTensors& tensors, int expert, int row, double* values);

/// Row `row` of expert `expert`'s w2: intermediate values.
void decode_w2(const ExpertTensors& tensors, int expert, int row, double* values);

/// The bias of logical row `row` of w1, or of row `row` of w2; 0 without biases.
double bias_1(const ExpertTensors& tensors, int expert, int row);
double bias_2(const ExpertTensors& tensors, int expert, int row);

/// Rounds h (FP32, `intermediate` values) to the format in which it enters the second matrix, and
/// decodes it again.
void requantise_h(Precision precision, const float* h, int intermediate, double* values);

}  // namespace megamoe::ref
