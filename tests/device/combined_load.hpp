#pragma once

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>

#include "tests/device/captured_call.hpp"
#include "tests/device/side_load.hpp"

namespace megamoe {

/// Steps as a server takes them: replays of captured decode calls of several token counts, mixed
/// with eager prefill calls of changing counts, while another stream runs other kernels.
class CombinedLoad {
 public:
  explicit CombinedLoad(GpuCase& layer) : layer_(&layer), rng_(3), times_(layer.device(0), 2) {
    std::set<int> devices;
    for (int r = 0; r < layer.problem().ranks; ++r) devices.insert(layer.device(r));
    for (const int device : devices) sides_.push_back(std::make_unique<SideLoad>(device));
    for (const int base : {1, 5, 16, 40}) add_decode(base);
    for (int i = 0; i < 8; ++i) add_prefill();
  }

  void run(int steps) {
    long tokens = 0;
    int replays = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
      const bool decode = rng_() % 4 != 0;
      const std::vector<Input>& inputs = decode ? decode_ : prefill_;
      const Input& input = inputs[rng_() % inputs.size()];
      for (const auto& side : sides_) side->step();
      take(input, step % kLookEvery == 0);
      if (::testing::Test::HasFatalFailure()) return;
      tokens += input.tokens;
      replays += decode ? 1 : 0;
    }
    ASSERT_NO_THROW(layer_->finish_call());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::size_t kernels = 0;
    for (const auto& side : sides_) {
      side->wait();
      kernels += side->kernels();
      EXPECT_TRUE(side->results_unchanged()) << "the other stream's results changed";
    }
    EXPECT_GT(kernels, static_cast<std::size_t>(steps / 100)) << "the other stream hardly ran";
    // A call's CTAs leave no room for other blocks on their SMs, but they start and end one by one.
    EXPECT_GT(overlapped_, compared_ / 20)
        << "of " << compared_ << " calls that were looked at; the other stream ran between calls";
    const std::string text = fmt::format(
        "{} ranks: {} steps ({} replays) in {:.1f} s, {:.0f} steps/s, {:.0f} tokens/s, beside {} "
        "other kernels; {} steps compared, {} of them while other kernels' blocks ran\n",
        layer_->problem().ranks, steps, replays, took.count(), steps / took.count(),
        static_cast<double>(tokens) / took.count(), kernels, compared_, overlapped_);
    std::fputs(text.c_str(), stdout);
  }

 private:
  static constexpr int kLookEvery = 7;
  static constexpr std::size_t kReferenceRows = 24;

  struct Input {
    GpuInputs on_gpu;
    std::vector<std::uint16_t> expected;
    long tokens;
    CapturedCall* graph;  ///< null: eager
  };

  [[nodiscard]] ref::RandomInputs random(const std::vector<int>& counts) {
    const ref::Routing routing{rng_() % 3 == 0 ? ref::RoutingKind::skewed
                                               : ref::RoutingKind::uniform};
    return ref::random_inputs(layer_->problem(), counts, routing, rng_());
  }

  /// Notes an input with the bits of its call on an idle device, compared with the reference.
  Input make_input(const ref::RandomInputs& inputs, CapturedCall* graph) {
    Input input{layer_->to_gpu(inputs), {}, 0, graph};
    for (const ref::RankTokens& rank : inputs.ranks) input.tokens += rank.num_tokens;
    layer_->stage(inputs);
    input.expected = layer_->run();
    if (input.tokens > 0) {
      const std::size_t step = 1 + static_cast<std::size_t>(input.tokens) / kReferenceRows;
      const ref::GpuCheck check = layer_->check_rows(input.expected, inputs, 0, step);
      EXPECT_TRUE(check.ok()) << ref::text(check);
    }
    return input;
  }

  void add_decode(int base) {
    std::vector<int> counts;
    for (int r = 0; r < layer_->problem().ranks; ++r) counts.push_back((base + 3 * r) % 64);
    const auto first = random(counts);
    layer_->stage(first);
    layer_->run();
    graphs_.push_back(std::make_unique<CapturedCall>(*layer_, ForwardOptions{}));
    for (int i = 0; i < 3; ++i) decode_.push_back(make_input(random(counts), graphs_.back().get()));
  }
  void add_prefill() {
    std::vector<int> counts;
    const auto most = static_cast<unsigned>(layer_->problem().max_tokens_per_rank);
    for (int r = 0; r < layer_->problem().ranks; ++r)
      counts.push_back(rng_() % 5 == 0 ? 0 : static_cast<int>(rng_() % most));
    prefill_.push_back(make_input(random(counts), nullptr));
  }

  void take(const Input& input, bool look) {
    layer_->start_upload(input.on_gpu);
    if (look)
      for (int r = 0; r < layer_->problem().ranks; ++r) layer_->clear_y(r);
    if (look) stamp(0);
    if (input.graph != nullptr) {
      input.graph->start_replay();
    } else {
      layer_->start_stage();
      layer_->start_call_only();
    }
    if (!look) return;
    stamp(1);
    // A replay is not known to the layer: the stream is.
    input.graph != nullptr ? input.graph->wait() : layer_->group().synchronize();
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = layer_->finish_call());
    ASSERT_EQ(y, input.expected) << "a step of " << input.tokens << " tokens, "
                                 << (input.graph != nullptr ? "replayed" : "eager");
    ++compared_;
    const std::vector<unsigned long long> times = times_.download();
    overlapped_ += sides_.front()->ran_between(times[0], times[1]) ? 1 : 0;
  }
  /// On the first rank's device, whose other stream is the first one too.
  void stamp(std::size_t which) {
    const cuda::DeviceGuard guard(layer_->device(0));
    cuda::check(launch_side_stamp(times_.data() + which, layer_->stream(0)), "a time stamp");
  }

  GpuCase* layer_;
  std::mt19937 rng_;
  std::vector<std::unique_ptr<SideLoad>> sides_;
  std::vector<std::unique_ptr<CapturedCall>> graphs_;
  std::vector<Input> decode_, prefill_;
  GpuArray<unsigned long long> times_;  ///< before and after a call that is looked at
  int compared_ = 0, overlapped_ = 0;
};

inline constexpr int kCombinedSteps = 12'000;

inline Problem combined_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 32,
          .top_k = 6,
          .hidden = 1024,
          .intermediate = 512,
          .max_tokens_per_rank = 1024};
}

}  // namespace megamoe
