#pragma once

#include <cstddef>
#include <vector>

#include "ref/reference.hpp"

// Inside the reference: rows of one expert, computed together so that its weights are decoded once
// for them.

namespace megamoe::ref {

/// One contribution to compute: row `row_idx` of the caller's list, slot `slot` (top_k and up:
/// shared experts).
struct Pair {
  std::size_t row_idx;
  int slot;
};

struct Block {
  const ExpertTensors* tensors;
  int expert;  ///< in `tensors`
  std::vector<Pair> pairs;
};

/// What an expert gives for a block's pairs.
struct BlockOutput {
  std::vector<double> o;  ///< [pairs, hidden], not yet rounded to BF16
  /// [pairs] how far o may be from a right kernel's in L2, because codes of h lie within the error
  /// of the activation from being rounded the other way; 0 for exact outputs.
  std::vector<double> doubt;
};

BlockOutput exact_output(const Input& input, std::span<const Row> rows, const Block& block);

/// As a Hopper GPU computes it; fp8 only.
BlockOutput tensor_core_output(const Input& input, std::span<const Row> rows, const Block& block);

}  // namespace megamoe::ref
