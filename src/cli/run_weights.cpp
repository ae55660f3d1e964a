#include "cli/progress.hpp"
#include "cli/run_case.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

void generate_weights(const RunRequest& request, RunCase& run, Io& io) {
  const Problem& p = run.problem();
  const auto owner = std::make_shared<ref::OwnedLayerWeights>();
  Progress progress(io.err, io.err_is_terminal && !request.json, "weights", p.ranks);
  for (int rank = 0; rank < p.ranks; ++rank) {
    owner->routed.push_back(ref::random_weights(p, rank, request.seed));
    progress.advance();
  }
  if (p.shared_experts > 0) owner->shared = ref::random_shared_weights(p, request.seed);
  run.weights = owner->view();
  run.owner = owner;
}

}  // namespace

Shape resolve_run_shape(const RunRequest& request, const ProblemFlags& flags) {
  return resolve_shape(flags, run_defaults());
}

void fill_weights(const RunRequest& request, RunCase& run, Io& io) {
  generate_weights(request, run, io);
}

}  // namespace megamoe::cli
