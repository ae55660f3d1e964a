// Waits of a role for another one of its CTA: which only GPUs and the simulator have, recorded by
// functions that all share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/host_env.hpp"
#include "tests/protocol/cpu_case.hpp"
#include "tests/support/error_of.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(InnerFaults, AreRecordedUnlessTheCallIsOver) {
  CpuCase ranks(faults_problem());
  using protocol::Phase;
  LayerState& s = LayerAccess::state(ranks.group().layer(0));
  const protocol::Geometry g = protocol::make_geometry(ranks.problem(), KernelConfig{}, 0, 0);
  const auto raise = [&](Phase phase, protocol::Role role, std::uint64_t index) {
    cpu::HostEnv env;
    protocol::Call<cpu::HostEnv> call{env, g, s.memory, &s.space->record(), 1000, 0,
                                      1,   2, 5,        s.generation,       role};
    protocol::raise_inner_fault(call, phase, 1, index);
  };
  const auto text_of = [&](int rank) {
    return error_of([&] { ranks.group().layer(rank).check(); }, ErrorCode::fault);
  };
  struct Case {
    Phase phase;
    protocol::Role role;
    const char* says;
  };
  for (const Case& c :
       {Case{Phase::tile_room, protocol::Role::math,
             "the math of CTA 2 gave up waiting for room for a finished tile"},
        Case{Phase::copies, protocol::Role::courier,
             "the courier of CTA 2 gave up waiting for copies of rank 1's rows for block 7"},
        Case{Phase::free_stage, protocol::Role::scheduler,
             "the scheduler of CTA 2 gave up waiting for stage 7 of its CTA's ring, from math"},
        Case{Phase::full_stage, protocol::Role::math,
             "the math of CTA 2 gave up waiting for a stage of its CTA's ring, from the scheduler"},
        Case{Phase::finished_tile, protocol::Role::publisher,
             "the publisher of CTA 2 gave up waiting for finished tile 7 of its CTA"}}) {
    raise(c.phase, c.role, 7);
    raise(Phase::tile_room, protocol::Role::math, 8);  // comes too late
    EXPECT_THAT(text_of(0), AllOf(HasSubstr("rank 0, call 5: "), HasSubstr(c.says),
                                  Not(HasSubstr("expected"))));
    EXPECT_THAT(text_of(1), HasSubstr("rank 0 gave up waiting for "));
    ranks.group().reset();
  }
  ranks.group().layer(1).abort();
  raise(Phase::full_stage, protocol::Role::math, 0);
  EXPECT_THAT(text_of(0), HasSubstr("rank 1 called abort()"));
  ranks.group().reset();
  const auto inputs = equal_inputs(ranks.problem(), 5, {ref::RoutingKind::uniform}, 2);
  ranks.stage(inputs);
  ranks.expect_close(ranks.run(inputs), ranks.reference(inputs), "good call");
}

TEST(InnerPatience, IsLongerThanWhatTheAwaitedRoleMayWaitFor) {
  using protocol::Phase;
  for (const std::uint64_t deadline : {1ULL, 1000ULL, 10'000'000'000ULL}) {
    for (const std::uint64_t margin : {1ULL, 1'000'000'000ULL}) {
      const auto at_most = [&](Phase phase) {
        return protocol::inner_patience_ns(phase, deadline, margin);
      };
      EXPECT_GE(at_most(Phase::copies), deadline);
      EXPECT_GT(at_most(Phase::tile_room), deadline);
      EXPECT_GT(at_most(Phase::free_stage), at_most(Phase::tile_room) + deadline);
      // A scheduler's wait for a stage, its protocol wait, and the landing of its copies.
      EXPECT_GT(at_most(Phase::full_stage), 2 * at_most(Phase::free_stage) + deadline);
      EXPECT_GT(at_most(Phase::finished_tile),
                at_most(Phase::full_stage) + at_most(Phase::tile_room) + deadline);
    }
  }
}

}  // namespace
}  // namespace megamoe
