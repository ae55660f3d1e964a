#pragma once

#include <array>
#include <deque>
#include <span>

#include "host/cuda/cuda_rank.hpp"

namespace megamoe::cuda {

/// Descriptors and parameters of the virtual ranks after a launch's first, in device memory. What a
/// launch reads stays as it is until that launch is over: launches take turns in a few slots, and a
/// captured launch keeps a place of its own for as long as the table lives.
class RankTable {
 public:
  struct Place {
    const RankMaps* maps = nullptr;
    const RankParams* ranks = nullptr;
  };

  /// For `others` ranks; 0: the table is never used. `owner` outlives the table.
  RankTable(CudaRank& owner, std::size_t others);
  RankTable(const RankTable&) = delete;
  RankTable& operator=(const RankTable&) = delete;
  ~RankTable();

  /// Brings both arrays, [others], to the device before what `stream` does next.
  Place place(std::span<const RankMaps> maps, std::span<const RankParams> ranks,
              cudaStream_t stream, bool capturing);

 private:
  static constexpr std::size_t kSlots = 16;

  void pack(std::span<const RankMaps> maps, std::span<const RankParams> ranks);
  [[nodiscard]] Place at(std::byte* base) const;

  CudaRank* owner_;
  std::size_t maps_bytes_;
  std::size_t bytes_;  ///< of one slot
  std::vector<std::byte> packed_;
  DeviceBuffer device_;
  MappedBuffer staging_;
  std::array<cudaEvent_t, kSlots> copied_ = {};  ///< the slot's staging has been read
  std::size_t current_ = 0;
  bool filled_ = false;  ///< the current slot holds a launch
  std::deque<DeviceBuffer> captured_;
};

}  // namespace megamoe::cuda
