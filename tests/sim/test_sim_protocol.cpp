#include <string>

#include <gtest/gtest.h>

#include "sim/runner.hpp"

namespace megamoe::sim {
namespace {

/// The true protocol in every scenario, a few seeds each.
class EveryScenario : public testing::TestWithParam<Scenario> {};

TEST_P(EveryScenario, IsGreen) {
  const Search s = search(GetParam(), 1'000'000, 40, Mutant::none);
  EXPECT_FALSE(s.is_red()) << "seed " << s.red_seed << ": " << s.red.failure << "\n" << s.red.trace;
  EXPECT_EQ(s.runs, 40U);
  EXPECT_GT(s.steps, s.runs * 50) << "the runs did next to nothing";
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryScenario,
                         testing::ValuesIn(scenarios().begin(), scenarios().end()),
                         [](const auto& p) { return std::string(p.param.name); });

/// 16 and 72 ranks: calls, a rank that stays away, reset, a call again.
class ManyRanks : public testing::TestWithParam<Scenario> {};

TEST_P(ManyRanks, CallFaultAndReset) {
  const Search s = search(GetParam(), 7, 2, Mutant::none);
  EXPECT_FALSE(s.is_red()) << "seed " << s.red_seed << ": " << s.red.failure << "\n" << s.red.trace;
}

INSTANTIATE_TEST_SUITE_P(Sim, ManyRanks,
                         testing::ValuesIn(large_scenarios().begin(), large_scenarios().end()),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(SimProtocol, ASeedDecidesARun) {
  for (u64 seed = 0; seed < 8; ++seed) {
    const Outcome first = run_seed(*find_scenario("two_ctas"), seed, Mutant::none);
    const Outcome second = run_seed(*find_scenario("two_ctas"), seed, Mutant::none);
    EXPECT_EQ(first.steps, second.steps) << seed;
    EXPECT_EQ(first.state_hash, second.state_hash) << seed;
  }
}

// A barrier of the whole grid hangs as soon as one slot of the device is taken, unless the grid
// leaves that one and one more.
TEST(SimProtocol, WholeGridBarrierNeedsAReserve) {
  EXPECT_TRUE(search(*find_scenario("held_slot"), 0, 5, Mutant::whole_grid_barrier).is_red());
  EXPECT_FALSE(
      search(*find_scenario("reserve_of_two"), 0, 300, Mutant::whole_grid_barrier).is_red());
}

TEST(SimProtocol, AFailureComesWithItsTrace) {
  const Search s = search(*find_scenario("small"), 0, 50, Mutant::arrived_unreleased);
  ASSERT_TRUE(s.is_red());
  EXPECT_NE(s.red.failure.find("race on combine@"), std::string::npos) << s.red.failure;
  EXPECT_NE(s.red.trace.find("arrived@"), std::string::npos) << s.red.trace;
}

TEST(SimProtocol, EveryMutantNamesAScenario) {
  for (const std::span<const MutantInfo> all : {mutants(), spare_rules()}) {
    for (const MutantInfo& m : all) {
      EXPECT_NE(find_scenario(m.scenario), nullptr) << m.name;
      EXPECT_EQ(find_mutant(m.name), m.mutant);
    }
  }
  EXPECT_GE(mutants().size(), 24U);
}

}  // namespace
}  // namespace megamoe::sim
