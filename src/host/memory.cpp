#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "host/aligned_buffer.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe {
namespace {

/// Ranks of one process in ordinary memory.
class HostMemory final : public SymmetricMemory {
 public:
  HostMemory(int ranks, bool one_launch) : ranks_(ranks), one_launch_(one_launch) {}

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] bool one_launch() const override { return one_launch_; }
  [[nodiscard]] std::vector<int> local_ranks() const override {
    std::vector<int> all(static_cast<std::size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<std::string> all_gather(const std::string& text) override {
    return std::vector<std::string>(static_cast<std::size_t>(ranks_), text);
  }
  [[nodiscard]] std::vector<int> lost_ranks() const override { return {}; }
  [[nodiscard]] std::string kind() const override { return "host memory"; }

  std::vector<std::byte*> allocate(std::size_t bytes) override {
    std::vector<std::byte*> bases;
    bases.reserve(static_cast<std::size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) bases.push_back(regions_.emplace_back(bytes).data());
    return bases;
  }

 private:
  int ranks_;
  bool one_launch_;
  std::vector<AlignedBuffer> regions_;
};

std::unique_ptr<SymmetricMemory> make_host_memory(int ranks, bool one_launch) {
  if (ranks < 1 || ranks > kMaxRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ranks = {} is outside 1..{}", ranks, kMaxRanks));
  }
  return std::make_unique<HostMemory>(ranks, one_launch);
}

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::host(int ranks) {
  return make_host_memory(ranks, false);
}
std::unique_ptr<SymmetricMemory> SymmetricMemory::host_virtual(int ranks) {
  return make_host_memory(ranks, true);
}

}  // namespace megamoe
