// Calls between two GPUs that finish while other streams' kernels hold SMs of either or of both.
#include <set>

#include <gtest/gtest.h>

#include "tests/device/captured_call.hpp"
#include "tests/device/hold_sms.hpp"

namespace megamoe {
namespace {

using namespace std::chrono_literals;

constexpr auto kHold = 5s;

/// Holders of `held` SMs of each of these GPUs; 0: of all that a call can spare.
class Holders {
 public:
  Holders(const std::set<int>& devices, int held) {
    for (const int device : devices) {
      const int blocks = held == 0 ? spare_sms(device, 1) : held;
      holders_.push_back(std::make_unique<SmHolder>(device, blocks, kHold));
      EXPECT_EQ(holders_.back()->num_sms(), blocks) << "SMs " << holders_.back()->sms();
    }
  }
  [[nodiscard]] bool all_hold() const {
    return std::all_of(holders_.begin(), holders_.end(), [](const auto& h) { return h->holds(); });
  }

 private:
  std::vector<std::unique_ptr<SmHolder>> holders_;
};

TEST(TwoGpusLiveness, CallsAndReplaysFinishWhileSmsAreHeld) {
  const Problem p = {.ranks = 2,
                     .experts = 16,
                     .top_k = 4,
                     .hidden = 640,
                     .intermediate = 384,
                     .max_tokens_per_rank = 200};
  GpuCase layer(p, gpus_of(2));
  for (const auto& [tokens, block_rows] : {std::pair{8, 8}, {200, 128}}) {
    const KernelConfig config = config_for_block_rows(p, block_rows);
    const ForwardOptions options = with_config(&config);
    const auto inputs = equal_inputs(p, tokens, {ref::RoutingKind::uniform}, 17);
    layer.stage(inputs);
    std::vector<std::uint16_t> idle;
    ASSERT_NO_THROW(idle = layer.run(options));
    layer.expect_close(idle, inputs, "idle GPUs");
    CapturedCall captured(layer, options, CapturedCall::Y::cleared);
    captured.replay();
    ASSERT_EQ(layer.finish_call(), idle) << "replayed on idle GPUs";
    const std::set<int> all = {layer.device(0), layer.device(1)};
    for (const std::set<int>& devices :
         {std::set{layer.device(0)}, std::set{layer.device(1)}, all}) {
      for (const int held : {1, 60, 0}) {
        const std::string what = fmt::format("{} tokens, {} SMs held on {} GPUs from {}", tokens,
                                             held, devices.size(), *devices.begin());
        const Holders holders(devices, held);
        layer.start_call(options);
        layer.group().synchronize();
        EXPECT_TRUE(holders.all_hold()) << what << ": the call waited for a holder to end";
        ASSERT_EQ(layer.download_y(), idle) << what;
        for (int replay = 0; replay < 5; ++replay) captured.start_replay();
        captured.wait();
        EXPECT_TRUE(holders.all_hold()) << what << ": the replays waited for a holder to end";
        ASSERT_EQ(layer.finish_call(), idle) << what << ", replayed";
      }
    }
  }
}

}  // namespace
}  // namespace megamoe
