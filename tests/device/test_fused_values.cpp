// Values, shapes and replays on virtual ranks.
#include <gtest/gtest.h>

#include "tests/device/replay_checks.hpp"
#include "tests/device/value_checks.hpp"

namespace megamoe {
namespace {

std::unique_ptr<GpuCase> on_virtual_ranks(const Problem& p) { return std::make_unique<GpuCase>(p); }

class FusedValues : public ::testing::TestWithParam<int> {};

TEST_P(FusedValues, ThousandsOfTokens) { check_large_counts(GetParam(), on_virtual_ranks); }
TEST_P(FusedValues, MoreTokensThanTicketsAreSmallFor) {
  check_many_tokens(GetParam(), on_virtual_ranks);
}
TEST_P(FusedValues, Clamps) { check_clamps(GetParam(), on_virtual_ranks); }
TEST_P(FusedValues, SpecialTokensAndExperts) { check_special_tokens(GetParam(), on_virtual_ranks); }

TEST_P(FusedValues, FiftyReplays) {
  GpuCase layer(replay_problem(GetParam()));
  expect_replays_equal_eager(layer, 50);
}

INSTANTIATE_TEST_SUITE_P(Virtual, FusedValues, ::testing::Values(1, 2, 4, 8));

TEST(FusedPrefill, GroupsOfEightBlocks) { check_prefill_groups(2, on_virtual_ranks); }
TEST(FusedModels, Shapes) { check_models(2, on_virtual_ranks); }

}  // namespace
}  // namespace megamoe
