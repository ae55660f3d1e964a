// One rank's L2 stores, and nothing else, come 50 ms late: the sum waits for them, eager and
// replayed, and the bits are those of a call in which nothing is late. MEGAMOE_STALE_READINESS: a
// build whose sum compares with a number that repeats over replays; here the bits of a replay must
// differ, or this test shows nothing.
#include <algorithm>
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/device/captured_call.hpp"
#include "tests/device/late_stores.hpp"

namespace megamoe {
namespace {

using namespace std::chrono_literals;

constexpr auto kLate = 50ms;

/// A call with wrong bits.
struct WrongCall {
  std::string what;
  bool replayed;
};

class LateStores {
 public:
  LateStores(GpuCase& layer, const KernelConfig& config)
      : layer_(&layer), options_(with_config(&config)) {
    for (std::uint64_t i = 0; i < 2; ++i) {
      const auto random = equal_inputs(layer.problem(), 20, {ref::RoutingKind::uniform}, 70 + i);
      inputs_[i] = layer.to_gpu(random);
      // The first call after a reset is right in the faulty build too.
      layer.group().reset();
      layer.stage(random);
      expected_[i] = layer.run(options_);
      layer.expect_close(expected_[i], random, "nothing late");
    }
  }

  /// The calls whose bits were wrong while `late` was late.
  std::vector<WrongCall> wrong_calls(int late) {
    CapturedCall graph(*layer_, options_);
    std::vector<WrongCall> wrong;
    set_late(late, kLate);
    for (std::size_t call = 0; call < 6; ++call) {
      const bool replayed = call % 3 != 0;  // with both inputs
      const std::string what =
          fmt::format("rank {} late, call {}, {}", late, call, replayed ? "replayed" : "eager");
      layer_->start_upload(inputs_[call % 2]);
      for (int r = 0; r < layer_->problem().ranks; ++r) layer_->clear_y(r);
      const auto start = std::chrono::steady_clock::now();
      if (replayed) {
        graph.start_replay();
        graph.wait();
      } else {
        layer_->start_stage();
        layer_->start_call_only(options_);
      }
      const auto y = layer_->finish_call();
      EXPECT_GE(std::chrono::steady_clock::now() - start, kLate) << what << ": nothing was late";
      if (y != expected_[call % 2]) wrong.push_back({what, replayed});
    }
    set_late(late, 0ms);
    return wrong;
  }

 private:
  void set_late(int rank, std::chrono::nanoseconds time) {
    for (int r = 0; r < layer_->problem().ranks; ++r) {
      set_late_stores(layer_->device(r), static_cast<unsigned>(rank),
                      static_cast<unsigned long long>(time.count()));
    }
  }

  GpuCase* layer_;
  ForwardOptions options_;
  GpuInputs inputs_[2];
  std::vector<std::uint16_t> expected_[2];
};

void check_late_stores(GpuCase& layer) {
  for (const int block_rows : {16, 128}) {
    const KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
    LateStores calls(layer, config);
    for (const int late : {1, 0}) {
      std::vector<WrongCall> wrong;
      ASSERT_NO_THROW(wrong = calls.wrong_calls(late)) << "blocks of " << block_rows;
#if MEGAMOE_STALE_READINESS
      EXPECT_TRUE(std::any_of(wrong.begin(), wrong.end(),
                              [](const WrongCall& call) { return call.replayed; }))
          << "in no replay was a sum that does not wait noticed, blocks of " << block_rows
          << ", rank " << late << " late, " << wrong.size() << " eager calls wrong";
      for (const WrongCall& call : wrong) {
        const std::string text = fmt::format("as it should, seen to be wrong: {}\n", call.what);
        std::fputs(text.c_str(), stdout);
      }
#else
      for (const WrongCall& call : wrong) {
        ADD_FAILURE() << "wrong, blocks of " << block_rows << ": " << call.what;
      }
#endif
    }
  }
}

Problem problem(int ranks) {
  return {.ranks = ranks,
          .experts = 16,
          .top_k = 4,
          .hidden = 640,
          .intermediate = 256,
          .max_tokens_per_rank = 32};
}

#if MEGAMOE_TEST_GPUS > 1
TEST(LateStoresTwoGpus, TheSumWaits) {
  GpuCase layer(problem(2), gpus_of(2));
  check_late_stores(layer);
}
#else
TEST(LateStoresVirtual, TheSumWaits) {
  for (const int ranks : {2, 4}) {
    GpuCase layer(problem(ranks));
    check_late_stores(layer);
    if (HasFatalFailure()) return;
  }
}
#endif

}  // namespace
}  // namespace megamoe
