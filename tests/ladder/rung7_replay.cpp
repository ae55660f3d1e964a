// Rung 7: replays of a captured call with changed inputs, and calls while SMs are held.
#include "tests/device/captured_call.hpp"
#include "tests/device/hold_sms.hpp"
#include "tests/ladder/rung.hpp"

namespace megamoe::ladder {
namespace {

using namespace std::chrono_literals;

void check_replays(GpuCase& layer, const KernelConfig& config, int tokens, Failures& failures) {
  const Problem& p = layer.problem();
  const ForwardOptions options = with_config(&config);
  layer.stage(equal_inputs(p, tokens, {ref::RoutingKind::uniform}, 1));
  layer.run(options);
  CapturedCall graph(layer, options);
  const ref::Routing routings[] = {{ref::RoutingKind::balanced},
                                   {ref::RoutingKind::skewed},
                                   {ref::RoutingKind::none},
                                   {ref::RoutingKind::one_rank},
                                   {ref::RoutingKind::masked, 0.5}};
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto inputs = equal_inputs(p, tokens, routings[round % 5], 80 + round);
    layer.stage(inputs);
    const std::vector<std::uint16_t> eager = layer.run(options);
    for (int again = 0; again < 2; ++again) {
      for (int r = 0; r < p.ranks; ++r) layer.clear_y(r);
      graph.start_replay();
      graph.wait();
      failures.require(layer.finish_call() == eager,
                       fmt::format("blocks of {}: replay {} differs from the eager call, {}",
                                   config.block_rows, 2 * round + 1 + static_cast<unsigned>(again),
                                   ref::name(routings[round % 5])));
    }
  }
}

void check_liveness(GpuCase& layer, const KernelConfig& config, int tokens, int ranks_per_gpu,
                    Failures& failures, std::string& note) {
  const ForwardOptions options = with_config(&config);
  const int device = layer.device(0), sms = sms_of(device);
  layer.stage(equal_inputs(layer.problem(), tokens, {ref::RoutingKind::uniform}, 2));
  const std::vector<std::uint16_t> idle = layer.run(options);
  for (const int held : {1, 4, spare_sms(device, ranks_per_gpu)}) {
    const SmHolder holder(device, held, 2s);
    layer.start_call(options);
    layer.group().synchronize();
    const std::string what = fmt::format("blocks of {}, {} of {} SMs held ({})", config.block_rows,
                                         held, sms, holder.sms());
    failures.require(holder.holds(), what + ": the call waited for the SMs");
    failures.require(layer.finish_call() == idle, what + ": y differs");
    note = fmt::format("20 replays each; held SMs {}", holder.sms());
  }
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  const auto layer = make_layer(arguments, tokens);
  for (const int block_rows : arguments.blocks) {
    const KernelConfig config = config_for_block_rows(layer->problem(), block_rows);
    check_replays(*layer, config, tokens, failures);
    check_liveness(*layer, config, tokens, arguments.virtual_ranks ? arguments.ranks : 1, failures,
                   note);
  }
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 7 replay and liveness",
                                "replays equal eager calls; calls end while SMs are held",
                                megamoe::ladder::run_case);
}
