#pragma once

#include <compare>
#include <map>

#include "kernels/fused_params.hpp"
#include "megamoe/weights.hpp"

namespace megamoe::cuda {

/// Tensor maps of one rank, encoded once for each set of weights and each block size. A map holds
/// addresses and shapes only, so it stays right while the bytes behind it change.
class RankMapCache {
 public:
  /// True if `get` would encode nothing, and was given the same addresses before, those of the
  /// scales included.
  [[nodiscard]] bool holds(const ExpertTensors& routed, const ExpertTensors* shared,
                           int block_rows) const;
  /// Valid until the next call. Throws Error when the driver refuses.
  const RankMaps& get(const Problem& problem, const protocol::Memory& memory,
                      const ExpertTensors& routed, const ExpertTensors* shared, int block_rows);

 private:
  /// So that callers whose weights move all the time do not fill the memory.
  static constexpr std::size_t kMost = 4096;

  struct Key {
    const void *w1, *w1_scales, *w2, *w2_scales;
    const void *shared_w1, *shared_w1_scales, *shared_w2, *shared_w2_scales;
    int block_rows;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const ExpertTensors& routed, const ExpertTensors* shared, int block_rows);

  std::map<Key, RankMaps> maps_;
};

}  // namespace megamoe::cuda
