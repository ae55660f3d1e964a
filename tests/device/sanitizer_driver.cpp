// Small calls on virtual ranks for compute-sanitizer, with deadlines that suit its pace. Run by
// tools/stage_sanitizer.sh; says whether the results were right.
#include <cstdio>
#include <limits>

#include <CLI/CLI.hpp>

#include "host/dispatch.hpp"
#include "tests/device/captured_call.hpp"

namespace megamoe {
namespace {

/// 100 times what tests allow a call.
constexpr auto kDeadline = std::chrono::seconds(500);

struct Arguments {
  std::vector<int> ranks = {1, 2};
  std::vector<int> tokens = {0, 3, 20};
  std::vector<int> blocks = {8, 16, 32, 64, 128};
  int ctas_per_rank = 2;
};

/// A call in which every rank has ids out of range: they count as none and are reported.
bool bad_ids_are_right(GpuCase& layer, ref::RandomInputs inputs, const ForwardOptions& options) {
  for (ref::RankTokens& rank : inputs.ranks) {
    if (rank.topk_idx.empty()) return true;
    rank.topk_idx.front() = inputs.problem.experts;
    rank.topk_idx.back() = std::numeric_limits<std::int64_t>::min();
  }
  layer.stage(inputs);
  const std::vector<std::uint16_t> y = layer.run(options);
  bool reported = true;
  for (int r = 0; r < inputs.problem.ranks; ++r) {
    reported = reported && layer.group().layer(r).check().bad_id.has_value();
  }
  return reported && layer.check_rows(y, inputs, 0, 1).ok();
}

/// Calls with wrong results.
int run_layer(const Arguments& arguments, int ranks) {
  const Problem p = {.ranks = ranks,
                     .experts = 4 * ranks,
                     .top_k = 2,
                     .hidden = 384,
                     .intermediate = 256,
                     .max_tokens_per_rank = 24};
  GpuCase layer(p);
  for (int r = 0; r < ranks; ++r) layer.state(r).first_call_deadline = kDeadline;
  int wrong = 0;
  for (const int tokens : arguments.tokens) {
    for (const int block_rows : arguments.blocks) {
      const KernelConfig config = config_for_block_rows(p, block_rows);
      ForwardOptions options = with_config(&config);
      options.deadline = kDeadline;
      options.num_sms = arguments.ctas_per_rank * ranks;
      const auto inputs = equal_inputs(p, tokens, {ref::RoutingKind::uniform}, 9);
      layer.stage(inputs);
      const std::vector<std::uint16_t> y = layer.run(options);
      const ref::GpuCheck check = layer.check_rows(y, inputs, 0, 1);
      const std::vector<int> counts(static_cast<std::size_t>(ranks), tokens);
      run_dispatch(layer.group(), counts, options, layer.streams());
      CapturedCall graph(layer, options);
      graph.start_replay();
      graph.wait();
      const bool replayed = layer.finish_call() == y;
      const bool good = check.ok() && replayed && bad_ids_are_right(layer, inputs, options);
      wrong += good ? 0 : 1;
      const std::string text =
          fmt::format("{} ranks, {} tokens, blocks of {}: {}, worst row {:.1e}\n", ranks, tokens,
                      block_rows, good ? "right" : "WRONG", check.difference.worst_row_relative_l2);
      std::fputs(text.c_str(), stdout);
    }
  }
  return wrong;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Small calls on virtual ranks, for compute-sanitizer");
  app.add_option("--ranks", arguments.ranks)->delimiter(',')->check(CLI::Range(1, 8));
  app.add_option("--tokens", arguments.tokens)->delimiter(',')->check(CLI::Range(0, 24));
  app.add_option("--blocks", arguments.blocks)
      ->delimiter(',')
      ->check(CLI::IsMember({8, 16, 32, 64, 128}));
  app.add_option("--ctas", arguments.ctas_per_rank, "CTAs per rank")->check(CLI::Range(1, 16));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  int wrong = 0;
  try {
    for (const int ranks : arguments.ranks) wrong += run_layer(arguments, ranks);
  } catch (const Error& e) {
    std::fprintf(stderr, "sanitizer_driver: %s\n", e.what());
    return 1;
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace megamoe

int main(int argc, char** argv) { return megamoe::run(argc, argv); }
