#pragma once

#include <memory>
#include <vector>

#include "cli/io.hpp"
#include "cli/problem_flags.hpp"
#include "cli/run_request.hpp"
#include "ref/random_case.hpp"
#include "ref/reference.hpp"

namespace megamoe::cli {

/// Everything that one run computes with.
struct RunCase {
  Shape shape;
  std::vector<ref::RankTokens> tokens;  ///< [ranks], weights of the slots as they enter the sum
  ref::LayerWeights weights;            ///< in the kernel's order; bytes owned by `owner`
  std::shared_ptr<const void> owner;

  [[nodiscard]] const Problem& problem() const { return shape.problem; }
  [[nodiscard]] ref::Input reference_input() const;
  /// Operations of the whole group.
  [[nodiscard]] double flops() const;
};

/// Opens or generates what the request names. Throws Error: bad files; a problem that does not fit
/// this machine's memory, before anything large is allocated.
RunCase make_run_case(const RunRequest& request, Io& io);

/// The problem that the request and these flags describe, with the checkpoint's dimensions if it
/// names one.
Shape resolve_run_shape(const RunRequest& request, const ProblemFlags& flags);

/// The weights of all ranks, generated or read; the precision and the activation become those of
/// the checkpoint.
void fill_weights(const RunRequest& request, RunCase& run, Io& io);

/// Bytes of all the group's weights.
double weight_bytes(const Problem& problem);

}  // namespace megamoe::cli
