#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/unfused/chain.hpp"
#include "cli/unfused/check_bounds.hpp"
#include "ref/reference.hpp"

namespace megamoe::cli::unfused {

/// Compares the chain's y with the reference (sampled rows) and with the fused kernel's (all rows).
class ChainCheck {
 public:
  /// Copies the first weight set of every rank to the host.
  ChainCheck(const Problem& problem, std::span<const ChainRankInput> inputs);
  ~ChainCheck();
  ChainCheck(const ChainCheck&) = delete;
  ChainCheck& operator=(const ChainCheck&) = delete;

  /// `y`, `fused_y`: on the GPU, BF16 [ranks][tokens][hidden], of one call with the first weight
  /// set and this routing. Returns diff of the sampled rows. Throws Error(fault) naming what
  /// differs and by how much.
  double check(std::span<const ref::TokenRouting> routing, std::span<const std::uint16_t* const> y,
               std::span<const std::uint16_t* const> fused_y) const;

 private:
  struct HostExperts;
  /// The sampled rows of y, exact and modelled.
  double check_sample(std::span<const ref::TokenRouting> routing,
                      const std::vector<std::vector<std::uint16_t>>& y, ChainBounds& bounds) const;

  Problem problem_;
  std::vector<const std::uint16_t*> hidden_states_;  ///< [ranks] on the GPU
  std::vector<std::unique_ptr<HostExperts>> owned_;
  ref::LayerWeights weights_;
};

}  // namespace megamoe::cli::unfused
