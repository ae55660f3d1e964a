#include "cli/unfused/exchange.hpp"

#include <numeric>

#include "cli/unfused/nccl.hpp"
#include "host/cuda/runtime.hpp"

namespace megamoe::cli::unfused {
namespace {

std::size_t before(std::span<const std::size_t> bytes, std::size_t rank) {
  return std::accumulate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::size_t{0});
}

/// For a group of one rank.
class NoExchange : public Exchange {
 public:
  void all_to_all(std::span<const RankTransfer> /*transfers*/) override {}
  [[nodiscard]] std::string note() const override { return "one GPU: no NCCL steps"; }
};

}  // namespace

void CopyExchange::all_to_all(std::span<const RankTransfer> transfers) {
  for (std::size_t src = 0; src < transfers.size(); ++src) {
    for (std::size_t dst = 0; dst < transfers.size(); ++dst) {
      const RankTransfer& from = transfers[src];
      const RankTransfer& to = transfers[dst];
      if (from.bytes_to[dst] == 0) continue;
      cuda::check(cudaMemcpyAsync(to.to + before(to.bytes_from, src),
                                  from.from + before(from.bytes_to, dst), from.bytes_to[dst],
                                  cudaMemcpyDeviceToDevice, to.stream),
                  "copying between virtual ranks");
    }
  }
}

std::string CopyExchange::note() const {
  return "virtual ranks: copies within the GPU in place of NCCL";
}

std::unique_ptr<Exchange> make_exchange(std::span<const int> devices) {
  if (devices.size() < 2) return std::make_unique<NoExchange>();
  if (devices[0] == devices[1]) return std::make_unique<CopyExchange>();
  return std::make_unique<NcclExchange>(devices);
}

}  // namespace megamoe::cli::unfused
