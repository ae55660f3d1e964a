// How many SMs a launch takes, and what the environment says about it.
#include <cstdlib>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/launch_sms.hpp"
#include "host/environment.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHopper = 132;
constexpr int kBlackwell = 148;

static_assert(launch_sms(100, kBlackwell, kBlackwell) == 146, "a constant expression");

TEST(LaunchSms, TwoAreLeftFreeWhereCtasRunInPairs) {
  EXPECT_EQ(launch_sms(100, kBlackwell, kBlackwell), kBlackwell - 2);
  EXPECT_EQ(launch_sms(103, 160, 160), 158);
}

TEST(LaunchSms, PairsNeedEvenCounts) {
  EXPECT_EQ(launch_sms(100, kBlackwell, kBlackwell, 3), 144);
  EXPECT_EQ(launch_sms(100, kBlackwell, 101), 100);
  EXPECT_EQ(launch_sms(100, 147, 147, 0), 146);
}

TEST(LaunchSms, AReserveOfZeroIsTaken) {
  EXPECT_EQ(launch_sms(100, kBlackwell, kBlackwell, 0), kBlackwell);
}

TEST(LaunchSms, AtLeastOnePairIsLeft) {
  EXPECT_EQ(launch_sms(100, kBlackwell, kBlackwell, 147), 2);
  EXPECT_EQ(launch_sms(100, kBlackwell, kBlackwell, 100000), 2);
  EXPECT_EQ(launch_sms(100, kBlackwell, 1), 2);
}

TEST(LaunchSms, HopperTakesAllUnlessAsked) {
  EXPECT_EQ(launch_sms(90, kHopper, kHopper), kHopper);
  EXPECT_EQ(launch_sms(90, kHopper, 131), 131);
  EXPECT_EQ(launch_sms(90, kHopper, 1), 1);
  EXPECT_EQ(launch_sms(90, kHopper, kHopper, 5), 127);
  EXPECT_EQ(launch_sms(90, kHopper, 40, 5), 40);
  EXPECT_LT(launch_sms(90, kHopper, kHopper, kHopper), 1) << "for the caller to refuse";
}

class Environment : public ::testing::Test {
 protected:
  Environment() { clear(); }
  ~Environment() override { clear(); }
  static void set(const char* variable, const char* value) { setenv(variable, value, 1); }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no Error";
  }

 private:
  static void clear() {
    for (const char* variable :
         {"MEGAMOE_RESERVED_SMS", "SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS",
          "MEGAMOE_RANKS_PER_GPU", "MEGAMOE_POISON", "RANK", "WORLD_SIZE", "LOCAL_RANK",
          "MASTER_ADDR", "MASTER_PORT", "MEGAMOE_PORT"})
      unsetenv(variable);
  }
};

TEST_F(Environment, OwnReserveComesBeforeThatOfSglang) {
  EXPECT_EQ(environment_reserved_sms(), std::nullopt);
  set("SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS", "6");
  EXPECT_EQ(environment_reserved_sms(), 6);
  EXPECT_EQ(environment_ranks_per_gpu(), 1);
  set("MEGAMOE_RANKS_PER_GPU", "2");
  EXPECT_EQ(environment_ranks_per_gpu(), 2);
  set("MEGAMOE_RANKS_PER_GPU", "0");
  EXPECT_THAT(error_of([] { environment_ranks_per_gpu(); }),
              HasSubstr("MEGAMOE_RANKS_PER_GPU = '0' is no integer of 1..8"));
  set("MEGAMOE_RESERVED_SMS", "0");
  EXPECT_EQ(environment_reserved_sms(), 0);
  set("MEGAMOE_RESERVED_SMS", "");
  EXPECT_EQ(environment_reserved_sms(), 6);
}

TEST_F(Environment, WhatIsNoCountIsRefusedByName) {
  for (const char* text : {"two", "-1", "3 ", "99999999999", "1.5"}) {
    set("MEGAMOE_RESERVED_SMS", text);
    EXPECT_THAT(error_of([] { environment_reserved_sms(); }),
                AllOf(HasSubstr("MEGAMOE_RESERVED_SMS"), HasSubstr(text)));
  }
  const Problem p = {.ranks = 1,
                     .experts = 2,
                     .top_k = 1,
                     .hidden = 128,
                     .intermediate = 128,
                     .max_tokens_per_rank = 1};
  EXPECT_THAT(error_of([&] { Group group(p, SymmetricMemory::host(1)); }),
              HasSubstr("MEGAMOE_RESERVED_SMS = '1.5'"));
}

TEST_F(Environment, ALauncherDescribesItsRank) {
  set("RANK", "3");
  EXPECT_THAT(error_of([] { rank_from_environment(); }), HasSubstr("WORLD_SIZE is not set"));
  set("WORLD_SIZE", "4");
  set("MASTER_ADDR", "10.0.0.7");
  set("MASTER_PORT", "29500");
  LauncherRank rank = rank_from_environment();
  EXPECT_EQ(rank.join.rank, 3);
  EXPECT_EQ(rank.join.ranks, 4);
  EXPECT_EQ(rank.join.address, "10.0.0.7");
  EXPECT_EQ(rank.join.port, 29500 + kPortOffset);
  EXPECT_EQ(rank.local_rank, 3);
  set("LOCAL_RANK", "1");
  set("MASTER_PORT", "65535");
  rank = rank_from_environment();
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.join.port, 65535 - kPortOffset);
  set("MEGAMOE_PORT", "1234");
  EXPECT_EQ(rank_from_environment().join.port, 1234);
  set("RANK", "4");
  EXPECT_THAT(error_of([] { rank_from_environment(); }), HasSubstr("RANK = '4'"));
}

}  // namespace
}  // namespace megamoe
