#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ref/compare.hpp"
#include "ref/reference.hpp"

namespace megamoe::cli::unfused {

/// What y of a chain may be off by. Its sums need not be added in the order of our kernels, but in
/// the tensor core they err as much: so twice the distance (four times diff) that the model of the
/// tensor core has from the exact reference in this very case, and never less than the layer's own
/// bounds.
struct ChainBounds {
  double diff = 3e-5;
  double worst_row = 2e-2;

  static ChainBounds from_case(const ref::TensorCoreOutput& model,
                               std::span<const std::uint16_t> exact, int hidden);
};

/// Throws Error(fault) with the numbers unless y [rows, hidden] is within the bounds of `exact`.
ref::Difference require_close(std::span<const std::uint16_t> y,
                              std::span<const std::uint16_t> exact, int hidden,
                              const ChainBounds& bounds, const std::string& what);

/// The tokens of one rank that are compared with the reference: `most` of them, the first and the
/// last among them, or all.
std::vector<int> sampled_tokens(int num_tokens, int most);

}  // namespace megamoe::cli::unfused
