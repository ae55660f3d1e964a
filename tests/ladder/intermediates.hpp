#pragma once

#include <vector>

#include "tests/ladder/rung.hpp"
#include "tests/support/planned_rows.hpp"

// What a call leaves in its rings and combine slots, and what should be there. For calls whose
// blocks all fit the rings, so that nothing was overwritten.

namespace megamoe::ladder {

/// The act ring of one rank after a call.
class ActRing {
 public:
  ActRing(GpuCase& layer, int rank, const KernelConfig& config);
  /// True if every block of the rows has a slot of its own.
  [[nodiscard]] bool holds(const std::vector<PlannedRow>& rows) const;
  /// Codes [intermediate] of a row.
  [[nodiscard]] const std::uint8_t* codes(const PlannedRow& row) const;
  /// The scale of a row's 128 channels from 128 * granule on.
  [[nodiscard]] float scale(const PlannedRow& row, int granule) const;

 private:
  int block_rows_, slots_, intermediate_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
};

/// h of a row, before it is quantised: from the row's codes and the weights, added as the tensor
/// core adds them, so exact but for the last bits of the activation.
std::vector<float> expected_h(const GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                              const PlannedRow& row);

/// BF16 o of a row from what the ring holds of it, added as the tensor core adds: bit for bit.
std::vector<std::uint16_t> expected_o(const GpuCase& layer, int rank, const PlannedRow& row,
                                      const ActRing& ring);

/// The combine slots of one rank, BF16 [contributions][capacity][hidden].
std::vector<std::uint16_t> combine_slots(GpuCase& layer, int rank);
/// Fills all ranks' combine slots with 0xFFFF, a NaN that no kernel writes.
void poison_combine_slots(GpuCase& layer);
/// Where slot `slot` of token `token` begins among them.
std::size_t combine_index(const Problem& p, int token, int slot);

/// Every how many rows of `rows` to look at so that a case takes seconds.
std::size_t row_step(std::size_t rows);

}  // namespace megamoe::ladder
