// Rung 4: all of L1. After a call the act ring holds every row's h, quantised.
#include <cmath>

#include "numerics/quantize.hpp"
#include "ref/tensor_core.hpp"
#include "tests/ladder/intermediates.hpp"

namespace megamoe::ladder {
namespace {

/// What was compared, and how far it was off.
struct Worst {
  double scale = 0;  ///< relative
  long differing = 0, codes = 0;
};

/// Compares one row of the ring with its expected h: the scale may differ by the last bits of the
/// activation, and a code only where these decide its rounding.
void check_row(const ActRing& ring, const PlannedRow& row, const std::vector<float>& h,
               const std::string& where, Worst& worst, Failures& failures) {
  long wrong = 0;
  double scale_error = 0;
  for (std::size_t first = 0; first < h.size(); first += kScaleGroup) {
    float amax = 0;
    for (std::size_t i = 0; i < kScaleGroup; ++i) amax = max_abs(amax, h[first + i]);
    const GroupScale group = group_scale(amax);
    const int granule = static_cast<int>(first) / kScaleGroup;
    scale_error = std::max(scale_error, std::fabs(static_cast<double>(ring.scale(row, granule)) /
                                                      static_cast<double>(group.scale) -
                                                  1));
    for (std::size_t i = first; i < first + kScaleGroup; ++i) {
      const std::uint8_t got = ring.codes(row)[i];
      if (got == quantize(h[i], group.multiplier)) continue;
      ++worst.differing;
      const bool doubtful = got == quantize(h[i] * (1 - ref::kActivationError), group.multiplier) ||
                            got == quantize(h[i] * (1 + ref::kActivationError), group.multiplier);
      wrong += doubtful ? 0 : 1;
    }
    worst.codes += kScaleGroup;
  }
  failures.require(scale_error < static_cast<double>(ref::kActivationError),
                   fmt::format("{}: a scale is off by {:.1e}", where, scale_error));
  failures.require(wrong == 0, fmt::format("{}: {} codes of h are wrong", where, wrong));
  worst.scale = std::max(worst.scale, scale_error);
}

void check_rank(GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                const std::vector<KernelConfig>& configs, const std::vector<ActRing>& rings,
                Worst& worst, Failures& failures) {
  const auto order = planned_rows(inputs, rank, 1);
  for (std::size_t i = 0; i < order.size(); i += row_step(order.size())) {
    const std::vector<float> h = expected_h(layer, inputs, rank, order[i]);
    for (std::size_t c = 0; c < configs.size(); ++c) {
      const auto rows = planned_rows(inputs, rank, configs[c].block_rows);
      if (!rings[c].holds(rows)) return failures.add("the act ring is too small for this case");
      check_row(
          rings[c], rows[i], h,
          fmt::format("blocks of {}, rank {}, expert {}, from rank {} token {}",
                      configs[c].block_rows, rank, order[i].expert, order[i].src, order[i].token),
          worst, failures);
    }
  }
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  const auto inputs = equal_inputs(layer->problem(), tokens, {ref::RoutingKind::masked, 0.1}, 5);
  std::vector<KernelConfig> configs;
  std::vector<std::vector<ActRing>> rings(static_cast<std::size_t>(arguments.ranks));
  for (const int block_rows : arguments.blocks)
    configs.push_back(config_for_block_rows(layer->problem(), block_rows));
  for (const KernelConfig& config : configs) {
    layer->stage(inputs);
    layer->run(with_config(&config));
    for (int r = 0; r < arguments.ranks; ++r)
      rings[static_cast<std::size_t>(r)].emplace_back(*layer, r, config);
  }
  Worst worst;
  for (int r = 0; r < arguments.ranks; ++r)
    check_rank(*layer, inputs, r, configs, rings[static_cast<std::size_t>(r)], worst, failures);
  note = fmt::format(
      "{} codes, {} rounded the other way by the activation's last bits; scales "
      "within {:.1e}",
      worst.codes, worst.differing, worst.scale);
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 4 L1",
                                "activation and requantisation: codes and scales of h",
                                megamoe::ladder::run_case);
}
