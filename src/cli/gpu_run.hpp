#pragma once

#include <memory>
#include <vector>

#include "cli/run_call.hpp"
#include "host/cuda/event.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {

struct GpuRank;

/// The ranks of a run that live in this process, on GPUs, with their weights and tokens, and their
/// Group; the tokens are staged.
class GpuRun {
 public:
  GpuRun(const RunCase& run, std::unique_ptr<SymmetricMemory> memory);
  GpuRun(const GpuRun&) = delete;
  GpuRun& operator=(const GpuRun&) = delete;
  ~GpuRun();

  Group& group() { return *group_; }
  /// One call, y filled with NaN first; microseconds on the GPU that took longest.
  double call(const ForwardOptions& options);
  [[nodiscard]] std::vector<std::vector<std::uint16_t>> y() const;
  /// The GPU of a local rank.
  [[nodiscard]] int device(std::size_t rank) const;

 private:
  [[nodiscard]] cudaStream_t stream(std::size_t rank) const;

  bool one_launch_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::unique_ptr<Group> group_;  // waits for its calls before the ranks' memory goes
};

}  // namespace megamoe::cli
