// Rung 6: the sum, bit for bit, from the contributions that the call itself left in the combine
// slots.
#include <cmath>

#include "numerics/bf16.hpp"
#include "tests/ladder/intermediates.hpp"

namespace megamoe::ladder {
namespace {

void check_rank(GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                std::span<const std::uint16_t> y, const std::string& where, Failures& failures) {
  const Problem& p = layer.problem();
  const auto slots = combine_slots(layer, rank);
  const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(rank)];
  for (int token = 0; token < tokens.num_tokens; ++token) {
    int wrong = 0;
    for (int c = 0; c < p.hidden; ++c) {
      float sum = 0;
      for (int slot = 0; slot < p.top_k; ++slot) {
        const auto i = static_cast<std::size_t>(token * p.top_k + slot);
        if (tokens.topk_idx[i] < 0) continue;
        const std::uint16_t part =
            slots[combine_index(p, token, slot) + static_cast<std::size_t>(c)];
        sum = std::fma(tokens.topk_weights[i], bf16_to_float(part), sum);
      }
      const auto at = static_cast<std::size_t>(token) * static_cast<std::size_t>(p.hidden) +
                      static_cast<std::size_t>(c);
      wrong += y[at] != float_to_bf16(sum) ? 1 : 0;
    }
    failures.require(wrong == 0, fmt::format("{}, rank {}, token {}: {} of {} values differ", where,
                                             rank, token, wrong, p.hidden));
  }
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  const Problem& p = layer->problem();
  const ref::Routing routings[] = {{ref::RoutingKind::uniform},
                                   {ref::RoutingKind::masked, 0.4},
                                   {ref::RoutingKind::one_expert},
                                   {ref::RoutingKind::none}};
  for (const int block_rows : arguments.blocks) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    for (const ref::Routing& routing : routings) {
      const auto inputs = equal_inputs(p, tokens, routing, 7);
      poison_combine_slots(*layer);
      layer->stage(inputs);
      const std::vector<std::uint16_t> y = layer->run(with_config(&config));
      const auto per_rank = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(p.hidden);
      for (int r = 0; r < p.ranks; ++r) {
        check_rank(*layer, inputs, r,
                   std::span<const std::uint16_t>(y).subspan(static_cast<std::size_t>(r) * per_rank,
                                                             per_rank),
                   fmt::format("blocks of {}, {}", block_rows, ref::name(routing)), failures);
      }
    }
  }
  note = "every bit of y as its contributions say";
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 6 sum", "y from the contributions, bit for bit",
                                megamoe::ladder::run_case);
}
