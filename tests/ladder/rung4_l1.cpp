// Rung 4: all of L1. After a call the act ring holds every row's h, quantised.
#include <cmath>

#include "numerics/quantize.hpp"
#include "tests/ladder/intermediates.hpp"

namespace megamoe::ladder {
namespace {

// The tensor core's sums are off by about 2e-4 of their terms, which moves a scale by as much and
// flips less than one code in a hundred to its neighbour.
constexpr double kMostScaleError = 2e-3;
constexpr double kMostRowError = 2e-2;
constexpr double kMostFlips = 0.02;

struct Worst {
  double scale = 0, row = 0;
  long flipped = 0, codes = 0;
};

/// Compares one row of the ring with its expected h.
void check_row(const ActRing& ring, const PlannedRow& row, const std::vector<float>& h,
               const std::string& where, Worst& worst, Failures& failures) {
  const std::vector<double> got = ring.values(row);
  double error = 0, norm = 0, scale_error = 0;
  for (std::size_t first = 0; first < h.size(); first += kScaleGroup) {
    std::uint8_t codes[kScaleGroup];
    const auto scale = static_cast<double>(quantize_group(h.data() + first, kScaleGroup, codes));
    const int granule = static_cast<int>(first) / kScaleGroup;
    scale_error =
        std::max(scale_error, std::fabs(static_cast<double>(ring.scale(row, granule)) / scale - 1));
    for (std::size_t i = 0; i < kScaleGroup; ++i) {
      worst.flipped += codes[i] != ring.codes(row)[first + i] ? 1 : 0;
      const double want = scale * static_cast<double>(kE4m3Values[codes[i]]);
      error += (got[first + i] - want) * (got[first + i] - want);
      norm += want * want;
    }
    worst.codes += kScaleGroup;
  }
  const double row_error = std::sqrt(error / norm);
  failures.require(scale_error < kMostScaleError,
                   fmt::format("{}: a scale is off by {:.1e}", where, scale_error));
  failures.require(row_error < kMostRowError,
                   fmt::format("{}: h is off by {:.1e}", where, row_error));
  worst.scale = std::max(worst.scale, scale_error);
  worst.row = std::max(worst.row, row_error);
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
  const double flips =
      worst.codes == 0 ? 0 : static_cast<double>(worst.flipped) / static_cast<double>(worst.codes);
  failures.require(flips < kMostFlips, fmt::format("{:.2f} % of the codes differ", 100 * flips));
  note = fmt::format("{} codes, {:.2f} % differ; scales within {:.1e}, rows within {:.1e}",
                     worst.codes, 100 * flips, worst.scale, worst.row);
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 4 L1",
                                "activation and requantisation: codes and scales of h",
                                megamoe::ladder::run_case);
}
