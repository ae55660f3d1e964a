// Rung 5: L2 and the stores to the rows' source ranks. Starts from the h that the call itself left
// in the act ring, so that L1 does not matter.
#include <algorithm>

#include "tests/ladder/intermediates.hpp"

namespace megamoe::ladder {
namespace {

constexpr std::uint16_t kPoison = 0xFFFF;

using Slots = std::vector<std::vector<std::uint16_t>>;  ///< combine slots by rank

/// Compares contributions that rank `rank` computed, bit for bit; returns how many rows.
long check_rank(GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                const KernelConfig& config, const Slots& slots, Failures& failures) {
  const Problem& p = layer.problem();
  const ActRing ring(layer, rank, config);
  const auto rows = planned_rows(inputs, rank, config.block_rows);
  if (!ring.holds(rows)) {
    failures.add("the act ring is too small for this case");
    return 0;
  }
  long compared = 0;
  for (std::size_t i = 0; i < rows.size(); i += row_step(rows.size())) {
    const PlannedRow& row = rows[i];
    const std::vector<std::uint16_t> want = expected_o(layer, rank, row, ring);
    const std::uint16_t* got =
        slots[static_cast<std::size_t>(row.src)].data() + combine_index(p, row.token, row.slot);
    long wrong = 0;
    for (std::size_t c = 0; c < want.size(); ++c) wrong += got[c] != want[c] ? 1 : 0;
    failures.require(
        wrong == 0, fmt::format("blocks of {}: expert {} of rank {}, for rank {} token {} slot {}: "
                                "{} of {} values differ",
                                config.block_rows, row.expert, rank, row.src, row.token, row.slot,
                                wrong, want.size()));
    ++compared;
  }
  return compared;
}

/// Every slot with an expert was written whole, and no other was touched.
void check_writes(const Problem& p, const ref::RandomInputs& inputs, const Slots& slots,
                  int block_rows, Failures& failures) {
  const auto hidden = static_cast<std::size_t>(p.hidden);
  for (int r = 0; r < p.ranks; ++r) {
    const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(r)];
    for (int token = 0; token < p.max_tokens_per_rank; ++token) {
      for (int slot = 0; slot < p.top_k; ++slot) {
        const bool used = token < tokens.num_tokens &&
                          tokens.topk_idx[static_cast<std::size_t>(token * p.top_k + slot)] >= 0;
        const std::uint16_t* first =
            slots[static_cast<std::size_t>(r)].data() + combine_index(p, token, slot);
        const auto poison = static_cast<std::size_t>(std::count(first, first + hidden, kPoison));
        failures.require(
            poison == (used ? 0 : hidden),
            fmt::format("blocks of {}: rank {} token {} slot {} ({}): {} of {} values "
                        "not written",
                        block_rows, r, token, slot, used ? "used" : "unused", poison, hidden));
      }
    }
  }
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  const Problem& p = layer->problem();
  const auto inputs = equal_inputs(p, tokens, {ref::RoutingKind::masked, 0.1}, 6);
  long compared = 0;
  for (const int block_rows : arguments.blocks) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    poison_combine_slots(*layer);
    layer->stage(inputs);
    layer->run(with_config(&config));
    Slots slots;
    for (int r = 0; r < p.ranks; ++r) slots.push_back(combine_slots(*layer, r));
    for (int r = 0; r < p.ranks; ++r)
      compared += check_rank(*layer, inputs, r, config, slots, failures);
    check_writes(p, inputs, slots, block_rows, failures);
  }
  note =
      fmt::format("{} contributions bit for bit, each in its slot and nothing elsewhere", compared);
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 5 L2",
                                "contributions, stored on their source ranks",
                                megamoe::ladder::run_case);
}
