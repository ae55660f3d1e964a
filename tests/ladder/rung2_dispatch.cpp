// Rung 2: the dispatch alone, against the CPU backend's.
#include "tests/device/dispatch_pair.hpp"
#include "tests/ladder/rung.hpp"

namespace megamoe::ladder {
namespace {

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  const Problem& p = layer->problem();
  DispatchPair pair(*layer);
  std::vector<int> unequal, last_only(static_cast<std::size_t>(p.ranks), 0);
  for (int r = 0; r < p.ranks; ++r) unequal.push_back(tokens * (r + 1) / p.ranks);
  last_only.back() = tokens;
  const std::vector<std::pair<std::string, ref::RandomInputs>> cases = {
      {"balanced", equal_inputs(p, tokens, {ref::RoutingKind::balanced}, 1)},
      {"all to one rank", equal_inputs(p, tokens, {ref::RoutingKind::one_rank}, 2)},
      {"unequal counts", ref::random_inputs(p, unequal, {ref::RoutingKind::uniform}, 3)},
      {"empty sources", ref::random_inputs(p, last_only, {ref::RoutingKind::masked, 0.2}, 4)}};
  int compared = 0;
  for (const int block_rows : arguments.blocks) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    for (const auto& [what, inputs] : cases) {
      const std::string different = pair.difference(inputs, config);
      failures.require(different.empty(), fmt::format("{}, blocks of {} rows: {} differ", what,
                                                      block_rows, different));
      ++compared;
    }
  }
  note = fmt::format("{} dispatches equal to the CPU's bit for bit", compared);
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 2 dispatch",
                                "counts, order, metadata, rows, scales and weights",
                                megamoe::ladder::run_case);
}
