// Calls that finish while another stream's kernel holds SMs, at the full SM count, without reserve.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/device/captured_call.hpp"
#include "tests/device/hold_sms.hpp"

namespace megamoe {
namespace {

using namespace std::chrono_literals;
using ref::RoutingKind;

constexpr auto kHold = 2s;

class FusedLiveness : public ::testing::TestWithParam<int> {
 protected:
  /// Runs a call while `held` SMs are held, and expects the bits of a call on an idle device.
  void expect_finishes(GpuCase& layer, int held, const ForwardOptions& options,
                       const std::vector<std::uint16_t>& expected, const std::string& what) {
    const SmHolder holder(0, held, kHold);
    ASSERT_EQ(holder.num_sms(), held) << "SMs " << holder.sms();
    const auto start = std::chrono::steady_clock::now();
    layer.start_call(options);
    layer.group().synchronize();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(holder.holds()) << what << ": the call waited for the holder to end";
    const std::string text = fmt::format("{}: {:.2f} ms while these SMs were held: {}\n", what,
                                         took.count(), holder.sms());
    std::fputs(text.c_str(), stdout);
    EXPECT_EQ(layer.finish_call(), expected) << what;
  }
};

TEST_P(FusedLiveness, CallsFinishWhileSmsAreHeld) {
  const int ranks = GetParam();
  const Problem p = {.ranks = ranks,
                     .experts = 48,
                     .top_k = 6,
                     .hidden = 640,
                     .intermediate = 384,
                     .max_tokens_per_rank = 256};
  GpuCase layer(p);
  for (const int block_rows : {8, 128}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    const ForwardOptions options = with_config(&config);
    for (const int tokens : {8, 200}) {
      const auto inputs = equal_inputs(p, tokens, {RoutingKind::uniform}, 17);
      layer.stage(inputs);
      std::vector<std::uint16_t> idle;
      ASSERT_NO_THROW(idle = layer.run(options));
      layer.expect_close(idle, inputs, "idle device");
      for (const int held : {1, 4, sms_of(0) - ranks}) {
        expect_finishes(layer, held, options, idle,
                        fmt::format("{} ranks, {} tokens each, blocks of {}, {} of {} SMs held",
                                    ranks, tokens, block_rows, held, sms_of(0)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(FusedLiveness, ReplaysFinishWhileSmsAreHeld) {
  const int ranks = GetParam();
  const Problem p = {.ranks = ranks,
                     .experts = 16,
                     .top_k = 4,
                     .hidden = 256,
                     .intermediate = 128,
                     .max_tokens_per_rank = 64};
  GpuCase layer(p);
  const auto inputs = equal_inputs(p, 30, {RoutingKind::uniform}, 18);
  layer.stage(inputs);
  std::vector<std::uint16_t> idle;
  ASSERT_NO_THROW(idle = layer.run());
  CapturedCall captured(layer, {}, CapturedCall::Y::cleared);
  {
    const SmHolder holder(0, sms_of(0) - ranks, kHold);
    for (int replay = 0; replay < 20; ++replay) captured.start_replay();
    captured.wait();
    EXPECT_TRUE(holder.holds()) << "the replays waited for the holder to end";
  }
  EXPECT_EQ(layer.finish_call(), idle);
  EXPECT_EQ(layer.group().layer(0).check().epoch, 21U);
}

INSTANTIATE_TEST_SUITE_P(Virtual, FusedLiveness, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace megamoe
