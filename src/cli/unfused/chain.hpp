#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "megamoe/problem.hpp"
#include "megamoe/weights.hpp"
#include "ref/random_case.hpp"

// The unfused chain: the layer as one can build it from libraries, to be timed beside the fused
// kernel:
//
//   stage        our staging kernel
//   pack         one copy of a token for each other rank that it visits
//   all-to-all   NCCL
//   expand       each expert's rows together, scales as cuBLASLt wants them
//   L1           cuBLASLt, one product per expert, 128x128 block scales, into FP32
//   activation   and quantisation
//   L2           cuBLASLt, one product per expert, into BF16
//   gather       rows that go back, one per slot
//   all-to-all   NCCL
//   sum          in slot order, FP32
//
// In its favour: counts are known on the host, so that no rank waits for them; products of
// different experts run side by side on several streams; NCCL moves a token once per rank. L1 gives
// FP32, not BF16, since rounding gate and up costs more accuracy than the layer's bounds leave.

namespace megamoe::cli::unfused {

/// What one rank of a chain works with; all pointers are of its GPU, and outlive the chain.
struct ChainRankInput {
  int device = 0;
  cudaStream_t stream = nullptr;                 ///< virtual ranks share one
  const std::uint16_t* hidden_states = nullptr;  ///< BF16 [capacity][hidden]
  std::vector<ExpertTensors> weight_sets;        ///< routed experts, W1Order::interleaved_8
  const ExpertTensors* shared = nullptr;
};

class UnfusedChain {
 public:
  virtual ~UnfusedChain() = default;
  /// Plans, allocates and uploads what calls with these routings ([routings][ranks]) need, in place
  /// of those before; then makes one call of each, so that algorithms are chosen and connections
  /// made.
  virtual void prepare(std::span<const std::vector<ref::TokenRouting>> routings) = 0;
  /// One call in the order of each rank's stream; may be captured.
  virtual void run(std::size_t routing, std::size_t weight_set) = 0;
  /// The output of a rank: BF16 [tokens][hidden].
  [[nodiscard]] virtual std::uint16_t* y(std::size_t rank) const = 0;
  /// The libraries, and what is left out.
  [[nodiscard]] virtual std::string note() const = 0;
};

/// What is missing for a chain on these devices (one per rank), by name; empty: nothing.
std::string why_no_chain(std::span<const int> devices);

/// Throws Error when something is missing or refused.
std::unique_ptr<UnfusedChain> make_chain(const Problem& problem,
                                         std::vector<ChainRankInput> inputs);

/// Bytes that a rank of a chain takes at most, weights included.
std::size_t chain_bytes(const Problem& problem, int weight_sets);

}  // namespace megamoe::cli::unfused
