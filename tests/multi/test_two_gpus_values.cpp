// Values, shapes and replays on two GPUs.
#include <gtest/gtest.h>

#include "tests/device/replay_checks.hpp"
#include "tests/device/value_checks.hpp"

namespace megamoe {
namespace {

std::unique_ptr<GpuCase> on_two_gpus(const Problem& p) {
  return std::make_unique<GpuCase>(p, gpus_of(2));
}

TEST(TwoGpusValues, ThousandsOfTokens) { check_large_counts(2, on_two_gpus); }
TEST(TwoGpusValues, MoreTokensThanTicketsAreSmallFor) { check_many_tokens(2, on_two_gpus); }
TEST(TwoGpusValues, GroupsOfEightBlocks) { check_prefill_groups(2, on_two_gpus); }
TEST(TwoGpusValues, Clamps) { check_clamps(2, on_two_gpus); }
TEST(TwoGpusValues, SpecialTokensAndExperts) { check_special_tokens(2, on_two_gpus); }
TEST(TwoGpusValues, ModelShapes) { check_models(2, on_two_gpus); }

TEST(TwoGpusValues, FiftyReplays) {
  GpuCase layer(replay_problem(2), gpus_of(2));
  expect_replays_equal_eager(layer, 50);
}

TEST(TwoGpusValues, OneRankReplaysWhileTheOtherCallsEagerly) {
  GpuCase layer(replay_problem(2), gpus_of(2));
  const Problem& p = layer.problem();
  layer.stage(equal_inputs(p, 40, {ref::RoutingKind::uniform}, 1));
  ASSERT_NO_THROW(layer.run());
  for (const int replaying : {0, 1}) {
    CapturedWork call(layer, {replaying}, [&] { layer.start_rank(replaying); });
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto inputs = equal_inputs(p, 40, {ref::RoutingKind::masked, 0.2}, 50 + seed);
      layer.stage(inputs);
      std::vector<std::uint16_t> eager;
      ASSERT_NO_THROW(eager = layer.run());
      layer.start_rank(1 - replaying);
      call.replay();
      ASSERT_EQ(layer.finish_call(), eager) << "rank " << replaying << " replays, " << seed;
    }
  }
}

}  // namespace
}  // namespace megamoe
