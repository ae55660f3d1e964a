#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace megamoe::cli::unfused {

/// What one rank gives to and takes from all others; bytes to and from itself are 0. What goes to
/// rank p lies in `from` after what goes to lower ranks, and so for `to`.
struct RankTransfer {
  const std::byte* from = nullptr;
  std::vector<std::size_t> bytes_to;  ///< [ranks]
  std::byte* to = nullptr;
  std::vector<std::size_t> bytes_from;  ///< [ranks]
  cudaStream_t stream = nullptr;
};

/// How the ranks of a process exchange rows; all work is in stream order and may be captured.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void all_to_all(std::span<const RankTransfer> transfers) = 0;
  /// What a reader should know, a few words.
  [[nodiscard]] virtual std::string note() const = 0;
};

/// Between virtual ranks, which share one stream: copies within the GPU.
class CopyExchange : public Exchange {
 public:
  void all_to_all(std::span<const RankTransfer> transfers) override;
  [[nodiscard]] std::string note() const override;
};

/// NCCL between GPUs, copies between virtual ranks (one device given several times), nothing for
/// one rank. Throws Error(unsupported) where NCCL is needed and missing.
std::unique_ptr<Exchange> make_exchange(std::span<const int> devices);

}  // namespace megamoe::cli::unfused
