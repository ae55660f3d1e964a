#include "host/cuda/rank_table.hpp"

#include <algorithm>

namespace megamoe::cuda {
namespace {

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

RankTable::RankTable(CudaRank& owner, std::size_t others)
    : owner_(&owner),
      maps_bytes_(rounded(others * sizeof(RankMaps))),
      bytes_(maps_bytes_ + rounded(others * sizeof(RankParams))),
      packed_(bytes_),
      device_(owner.device(), std::max<std::size_t>(1, kSlots * bytes_)),
      staging_(std::max<std::size_t>(1, kSlots * bytes_)) {
  const DeviceGuard guard(owner.device());
  for (cudaEvent_t& event : copied_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
}

RankTable::~RankTable() {
  for (cudaEvent_t event : copied_) cudaEventDestroy(event);
}

void RankTable::pack(std::span<const RankMaps> maps, std::span<const RankParams> ranks) {
  std::memcpy(packed_.data(), maps.data(), maps.size_bytes());
  std::memcpy(packed_.data() + maps_bytes_, ranks.data(), ranks.size_bytes());
}

RankTable::Place RankTable::at(std::byte* base) const {
  return {reinterpret_cast<const RankMaps*>(base),
          reinterpret_cast<const RankParams*>(base + maps_bytes_)};
}

RankTable::Place RankTable::place(std::span<const RankMaps> maps, std::span<const RankParams> ranks,
                                  cudaStream_t stream, bool capturing) {
  if (maps.empty()) return {};
  pack(maps, ranks);
  if (capturing) {
    const BesideCapture beside;
    captured_.emplace_back(owner_->device(), bytes_);
    owner_->write(captured_.back().data(), packed_.data(), bytes_);
    return at(captured_.back().data());
  }
  const auto staged = [&] { return staging_.host() + current_ * bytes_; };
  if (!filled_ || std::memcmp(staged(), packed_.data(), bytes_) != 0) {
    if (filled_) current_ = (current_ + 1) % kSlots;
    // Waits only for a copy that was given to a stream kSlots different launches ago.
    check(cudaEventSynchronize(copied_[current_]), "waiting for an earlier launch's copy");
    std::memcpy(staged(), packed_.data(), bytes_);
    check(cudaMemcpyAsync(device_.data() + current_ * bytes_, staged(), bytes_,
                          cudaMemcpyHostToDevice, stream),
          "copying the virtual ranks of a launch");
    check(cudaEventRecord(copied_[current_], stream), "cudaEventRecord");
    filled_ = true;
  }
  return at(device_.data() + current_ * bytes_);
}

}  // namespace megamoe::cuda
