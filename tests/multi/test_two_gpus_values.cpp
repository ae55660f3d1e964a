// Values, shapes and replays on two GPUs.
#include <gtest/gtest.h>

#include "tests/device/replay_checks.hpp"
#include "tests/device/value_checks.hpp"

namespace megamoe {
namespace {

std::unique_ptr<GpuCase> on_two_gpus(const Problem& p) {
  return std::make_unique<GpuCase>(p, std::vector<int>{0, 1});
}

TEST(TwoGpusValues, ThousandsOfTokens) { check_large_counts(2, on_two_gpus); }
TEST(TwoGpusValues, Clamps) { check_clamps(2, on_two_gpus); }
TEST(TwoGpusValues, SpecialTokensAndExperts) { check_special_tokens(2, on_two_gpus); }
TEST(TwoGpusValues, ModelShapes) { check_models(2, on_two_gpus); }

TEST(TwoGpusValues, FiftyReplays) {
  GpuCase layer(replay_problem(2), {0, 1});
  expect_replays_equal_eager(layer, 50);
}

TEST(TwoGpusValues, OneRankReplaysWhileTheOtherCallsEagerly) {
  GpuCase layer(replay_problem(2), {0, 1});
  const Problem& p = layer.problem();
  layer.stage(equal_inputs(p, 40, {ref::RoutingKind::uniform}, 1));
  ASSERT_NO_THROW(layer.run());
  const auto start_rank = [&](int rank) {
    const RankCall call = layer.call_of(rank);
    layer.group().layer(rank).forward(call.y, call.num_tokens, *call.weights, nullptr, {},
                                      layer.stream(rank));
  };
  for (const int replaying : {0, 1}) {
    const cuda::DeviceGuard guard(replaying);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaStreamBeginCapture(layer.stream(replaying), cudaStreamCaptureModeThreadLocal),
                "capture");
    start_rank(replaying);
    cuda::check(cudaStreamEndCapture(layer.stream(replaying), &graph), "end of the capture");
    cuda::check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto inputs = equal_inputs(p, 40, {ref::RoutingKind::masked, 0.2}, 50 + seed);
      layer.stage(inputs);
      std::vector<std::uint16_t> eager;
      ASSERT_NO_THROW(eager = layer.run());
      for (int r = 0; r < 2; ++r) layer.clear_y(r);
      start_rank(1 - replaying);
      cuda::check(cudaGraphLaunch(executable, layer.stream(replaying)), "replay");
      cuda::check(cudaStreamSynchronize(layer.stream(replaying)), "replay");
      ASSERT_EQ(layer.finish_call(), eager) << "rank " << replaying << " replays, " << seed;
    }
    cudaGraphExecDestroy(executable);
  }
}

}  // namespace
}  // namespace megamoe
