#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "sim/explore.hpp"
#include "sim/prove.hpp"
#include "sim/report.hpp"
#include "sim/runner.hpp"

namespace megamoe::sim {
namespace {

/// A red run, with the command that repeats it.
std::string report(const Scenario& scenario, const Search& s) {
  return s.red.failure + "\n" + s.red.trace + replay_command(scenario, s.red_seed, Mutant::none);
}

/// The true protocol in every scenario, a few seeds each.
class EveryScenario : public testing::TestWithParam<Scenario> {};

TEST_P(EveryScenario, IsGreen) {
  const Search s = search(GetParam(), 1'000'000, 40, Mutant::none);
  EXPECT_FALSE(s.is_red()) << report(GetParam(), s);
  EXPECT_EQ(s.runs, 40U);
  EXPECT_GT(s.steps, s.runs * 50) << "the runs did next to nothing";
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryScenario,
                         testing::ValuesIn(scenarios().begin(), scenarios().end()),
                         [](const auto& p) { return std::string(p.param.name); });

/// 16 and 72 ranks, of the CPU's and of the GPU's agents. A run makes the group, finishes call 1 on
/// every rank, lets the last rank stay away from call 2, in which all others must give up in time
/// and be able to name it, resets, and finishes call 3; see World::host.
class ManyRanks : public testing::TestWithParam<Scenario> {};

TEST_P(ManyRanks, CallFaultAndReset) {
  ASSERT_EQ(GetParam().calls, 3U);
  ASSERT_EQ(GetParam().trouble, Trouble::dead_rank);
  const Search s = search(GetParam(), 7, 2, Mutant::none);
  EXPECT_FALSE(s.is_red()) << report(GetParam(), s);
  // The same without its reset, and without deadlines: the run goes through both.
  EXPECT_TRUE(search(GetParam(), 7, 1, Mutant::reset_keeps_abort).is_red());
  EXPECT_TRUE(search(GetParam(), 7, 1, Mutant::no_deadline).is_red());
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

/// What `run` prints to the file that it is given.
template <class Run>
std::string printed(Run run) {
  std::FILE* file = std::tmpfile();
  run(file);
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(SimProtocol, AFailingSeedIsReplayedStepByStep) {
  const Scenario& small = *find_scenario("small");
  const Search s = search(small, 0, 50, Mutant::arrived_unreleased);
  ASSERT_TRUE(s.is_red());
  EXPECT_EQ(replay_command(small, s.red_seed, Mutant::arrived_unreleased),
            "build/host/sim/megamoe_sim replay small --seed " + std::to_string(s.red_seed) +
                " --mutant arrived_unreleased");
  Outcome again;
  const std::string trace = printed([&](std::FILE* file) {
    again = run_seed(small, s.red_seed, Mutant::arrived_unreleased, file);
  });
  EXPECT_EQ(again.failure, s.red.failure);
  EXPECT_EQ(again.steps, s.red.steps);
  // The whole run, up to the last steps that the failure came with.
  EXPECT_EQ(trace.substr(trace.size() - s.red.trace.size()), s.red.trace);
  EXPECT_NE(trace.find("host                        launch call 1\n"), std::string::npos) << trace;
}

/// What the proof of a mutant prints, and whether it counts as found.
struct Proof {
  bool found = false;
  std::string text;
};
Proof prove(const MutantInfo& m) {
  Proof proof;
  proof.text = printed([&](std::FILE* file) { proof.found = prove_mutant(m, 50, true, file); });
  return proof;
}

TEST(SimMutants, ARedOfAnotherKindDoesNotCount) {
  MutantInfo m = {Mutant::arrived_unreleased, "arrived_unreleased", "a rule", "small",
                  "race on combine@"};
  EXPECT_TRUE(prove(m).found) << prove(m).text;
  m.expected = "nobody can go on";
  const Proof wrong = prove(m);
  EXPECT_FALSE(wrong.found);
  EXPECT_NE(wrong.text.find("expected 'nobody can go on', found:\nrace on combine@"),
            std::string::npos)
      << wrong.text;
  m.expected = "";
  EXPECT_FALSE(prove(m).found) << "nothing expected is nothing found";
}

TEST(SimMutants, GreenDoesNotCount) {
  const Proof green = prove({Mutant::none, "none", "no rule", "small", "race on combine@"});
  EXPECT_FALSE(green.found);
  EXPECT_NE(green.text.find("green"), std::string::npos) << green.text;
}

TEST(SimMutants, ExpectedWords) {
  EXPECT_TRUE(is_expected("race", "a race on x"));
  EXPECT_FALSE(is_expected("race", "deadlock"));
  EXPECT_TRUE(is_expected("lock&race|race on x", "a race on x"));
  EXPECT_FALSE(is_expected("lock&race|race on y", "a race on x"));
  EXPECT_FALSE(is_expected("race&", "a race"));
  EXPECT_FALSE(is_expected("", "a race"));
}

/// Two calls without tokens: little to explore.
constexpr Scenario kIdle = {.name = "idle",
                            .experts_per_rank = 1,
                            .top_k = 1,
                            .capacity = 1,
                            .calls = 2,
                            .roles = Roles::threads,
                            .routing = Routing::none};

TEST(SimExplore, FollowsEverySchedule) {
  const Exploration e = explore(kIdle, 1, Mutant::none, {.preemptions = 1});
  EXPECT_TRUE(e.complete);
  EXPECT_EQ(e.red.failure, "");
  EXPECT_GT(e.runs + e.cut, 1000U);
  const Exploration fewer = explore(kIdle, 1, Mutant::none, {.preemptions = 0});
  EXPECT_TRUE(fewer.complete);
  EXPECT_LT(fewer.states, e.states);
  const Exploration stopped = explore(kIdle, 1, Mutant::none, {.preemptions = 1, .max_runs = 100});
  EXPECT_FALSE(stopped.complete);
}

TEST(SimExplore, FindsAFaultAndPrintsItsSchedule) {
  Exploration e;
  const std::string trace =
      printed([&](std::FILE* file) { e = explore(kIdle, 1, Mutant::one_parity, {}, file); });
  ASSERT_NE(e.red.failure, "");
  EXPECT_EQ(trace.substr(trace.size() - e.red.trace.size()), e.red.trace);
}

TEST(SimProtocol, EveryMutantNamesAScenario) {
  for (const std::span<const MutantInfo> all : {mutants(), spare_rules()}) {
    for (const MutantInfo& m : all) {
      EXPECT_NE(find_scenario(m.scenario), nullptr) << m.name;
      EXPECT_EQ(find_mutant(m.name), m.mutant);
      EXPECT_STREQ(name(m.mutant), m.name);
      EXPECT_EQ(*m.expected == 0, all.data() != mutants().data()) << m.name;
    }
  }
  EXPECT_GE(mutants().size(), 24U);
}

}  // namespace
}  // namespace megamoe::sim
