// What a call on a GPU refuses, and what it reports when it cannot finish.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host/cuda/cuda_rank.hpp"
#include "tests/device/gpu_case.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class FusedFaults : public ::testing::Test {
 protected:
  void expect_good_call(std::uint64_t seed) {
    const auto inputs = equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, seed);
    case_.stage(inputs);
    std::vector<std::uint16_t> y;
    ASSERT_NO_THROW(y = case_.run());
    case_.expect_close(y, inputs, "good call");
  }
  /// Rank 0 waits in its next call for one contribution of rank 1 that nobody sends.
  void take_a_contribution() {
    LayerState& s = case_.state(0);
    protocol::u64* arrived = s.memory.arrived(0, 0, 1);
    s.space->store(arrived, s.space->load(arrived) - 1);
  }
  /// Starts a call, the second, that waits for ever but for its deadline. Returns when.
  Clock::time_point start_call_that_waits(std::chrono::nanoseconds deadline) {
    expect_good_call(1);
    take_a_contribution();
    ForwardOptions options;
    options.deadline = deadline;
    case_.stage(equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 2));
    const auto start = Clock::now();
    case_.start_call(options);
    return start;
  }
  Layer& layer(int rank) { return case_.group().layer(rank); }
  std::string refused(const ForwardOptions& options, ErrorCode code = ErrorCode::invalid_argument) {
    return error_of([&] { case_.start_call(options); }, code);
  }

  GpuCase case_{faults_problem()};
};

TEST_F(FusedFaults, AbortEndsACallThatWaits) {
  start_call_that_waits(60s);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(cudaStreamQuery(case_.stream(0)), cudaErrorNotReady);
  const auto start = Clock::now();
  layer(1).abort();
  case_.group().synchronize();
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_THAT(error_of([&] { layer(0).check(); }, ErrorCode::fault),
              HasSubstr("rank 1 called abort()"));
  EXPECT_THAT(error_of([&] { case_.start_call(); }, ErrorCode::fault), HasSubstr("reset()"));
  case_.group().reset();
  EXPECT_EQ(layer(0).check().epoch, 0U);
  for (std::uint64_t seed = 3; seed < 6; ++seed) expect_good_call(seed);
}

TEST_F(FusedFaults, AWaitPastItsDeadlineNamesWhatItWaitedFor) {
  constexpr auto kDeadline = 300ms;
  const auto start = start_call_that_waits(kDeadline);
  case_.group().synchronize();
  EXPECT_LT(Clock::now() - start, kDeadline + 1s);
  EXPECT_THAT(error_of([&] { layer(0).check(); }, ErrorCode::fault),
              AllOf(HasSubstr("rank 0, call 2"), HasSubstr("the contributions of rank 1")));
  EXPECT_THAT(error_of([&] { layer(1).check(); }, ErrorCode::fault),
              HasSubstr("rank 0 gave up waiting"));
  EXPECT_THAT(error_of([&] { case_.start_call(); }, ErrorCode::fault), HasSubstr("reset()"));
  for (int round = 0; round < 3; ++round) {
    case_.group().reset();
    expect_good_call(10);
    expect_good_call(11);
  }
}

TEST_F(FusedFaults, MoreCtasThanTheGridMeansTwoCallsInFlight) {
  LayerState& s = case_.state(0);
  s.space->store(&s.launch_header->start, protocol::tagged(protocol::kFirstEpoch, 400));
  case_.stage(equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 2));
  case_.start_call();
  case_.group().synchronize();
  std::string texts;
  for (int r = 0; r < 2; ++r) {
    try {
      layer(r).check();
    } catch (const Error& e) {
      texts += e.what();
    }
  }
  EXPECT_THAT(texts, HasSubstr("two calls are in flight"));
  case_.group().reset();
  expect_good_call(3);
}

TEST_F(FusedFaults, BadExpertIdsCountAsNoneAndAreReported) {
  auto inputs = equal_inputs(case_.problem(), 6, {ref::RoutingKind::uniform}, 3);
  inputs.ranks[1].topk_idx[2 * 4 + 3] = 12;
  inputs.ranks[0].topk_idx[0] = -2;
  case_.stage(inputs);
  std::vector<std::uint16_t> y;
  ASSERT_NO_THROW(y = case_.run());
  case_.expect_close(y, inputs, "ids out of range");
  const auto bad = layer(1).check().bad_id;
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->token, 2);
  EXPECT_EQ(bad->slot, 3);
  EXPECT_EQ(bad->value, 12);
  ASSERT_TRUE(layer(0).check().bad_id.has_value());
  EXPECT_EQ(layer(0).check().bad_id->value, -2);
  inputs.ranks[1].topk_idx[2 * 4 + 3] = std::int64_t{1} << 40U;
  inputs.ranks[0].topk_idx[5] = std::numeric_limits<std::int64_t>::min();
  case_.stage(inputs);
  ASSERT_NO_THROW(y = case_.run());
  case_.expect_close(y, inputs, "ids far out of range");
}

TEST_F(FusedFaults, CallsThatCannotRunAreRefusedBeforeAnythingChanges) {
  case_.stage(equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 1));
  ForwardOptions options;
  options.num_sms = 1;
  EXPECT_THAT(refused(options), AllOf(HasSubstr("num_sms = 1"), HasSubstr("needs at least 2")));
  options = {};
  options.reserved_sms = 100000;
  EXPECT_THAT(refused(options), HasSubstr("reserved_sms = 100000"));
  KernelConfig config = config_for_block_rows(case_.problem(), 16);
  config.num_waves = 2;
  EXPECT_THAT(refused(with_config(&config), ErrorCode::unsupported), HasSubstr("num_waves = 2"));
  config = config_for_block_rows(case_.problem(), 16);
  config.l2_tile_channels = 128;
  EXPECT_THAT(refused(with_config(&config), ErrorCode::unsupported),
              HasSubstr("l2_tile_channels = 128"));
  config = config_for_block_rows(case_.problem(), 16);
  config.family = Family::prefill;
  EXPECT_THAT(refused(with_config(&config), ErrorCode::unsupported),
              HasSubstr("no CUDA kernel for prefill blocks of 16 rows"));

  const auto changed = [&](auto change, ErrorCode code) {
    ExpertTensors w = case_.routed(1);
    std::vector<RankCall> calls = {case_.call_of(0), case_.call_of(1)};
    change(calls[1], w);
    calls[1].weights = &w;
    return error_of([&] { case_.group().forward(calls); }, code);
  };
  std::vector<std::uint16_t> host(64 * 256);
  EXPECT_THAT(
      changed([&](RankCall& c, ExpertTensors&) { c.y = host.data(); }, ErrorCode::invalid_argument),
      AllOf(HasSubstr("y = "), HasSubstr("ordinary host memory")));
  EXPECT_THAT(changed([&](RankCall& c, ExpertTensors&) { c.y += 1; }, ErrorCode::invalid_argument),
              HasSubstr("aligned to 16"));
  EXPECT_THAT(changed([&](RankCall&,
                          ExpertTensors& w) { w.w1 = reinterpret_cast<std::byte*>(host.data()); },
                      ErrorCode::invalid_argument),
              HasSubstr("w1 = "));
  EXPECT_THAT(changed([&](RankCall&,
                          ExpertTensors& w) { w.b2 = reinterpret_cast<const float*>(w.w2_scales); },
                      ErrorCode::unsupported),
              HasSubstr("b2"));
  EXPECT_THAT(error_of([&] { layer(0).forward(case_.y(0), 5, case_.routed(0)); },
                       ErrorCode::invalid_argument),
              HasSubstr("only Group::forward"));
  EXPECT_EQ(layer(0).check().epoch, 0U);
  expect_good_call(9);
}

TEST_F(FusedFaults, NewScalesOfKnownWeightsAreChecked) {
  expect_good_call(1);
  case_.stage(equal_inputs(case_.problem(), 5, {ref::RoutingKind::uniform}, 2));
  const std::vector<float> host(1024);
  const auto refused_with = [&](auto change) {
    ExpertTensors w = case_.routed(1);
    change(w, reinterpret_cast<const std::byte*>(host.data()));
    std::vector<RankCall> calls = {case_.call_of(0), case_.call_of(1)};
    calls[1].weights = &w;
    return error_of([&] { case_.group().forward(calls); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(refused_with([](ExpertTensors& w, const std::byte* p) { w.w1_scales = p; }),
              AllOf(HasSubstr("w1_scales = "), HasSubstr("ordinary host memory")));
  EXPECT_THAT(refused_with([](ExpertTensors& w, const std::byte* p) { w.w2_scales = p; }),
              AllOf(HasSubstr("w2_scales = "), HasSubstr("ordinary host memory")));
  expect_good_call(3);
}

TEST_F(FusedFaults, EachCallHasItsOwnDeadlineHoweverManyAreQueued) {
  constexpr std::size_t kChanges = 2 * cuda::CudaRank::kDeadlines + 3;
  expect_good_call(1);
  LayerState& s = case_.state(0);
  auto& rank = static_cast<cuda::CudaRank&>(*s.space);
  LocalHeader* const header = s.memory.local_header();
  const cuda::DeviceGuard guard(case_.device(0));
  const cudaStream_t stream = case_.stream(0);
  const cuda::MappedBuffer seen(kChanges * sizeof(std::uint64_t));
  // Nothing is stored before all changes but those that wait are queued.
  cuda::check(cudaLaunchHostFunc(
                  stream, [](void*) { std::this_thread::sleep_for(300ms); }, nullptr),
              "cudaLaunchHostFunc");
  const auto deadline_of = [](std::size_t change) { return 1'000'000'000 + std::uint64_t{change}; };
  for (std::size_t i = 0; i < kChanges; ++i) {
    rank.set_deadlines(header, s.generation, {deadline_of(i), deadline_of(i)}, stream, false);
    cuda::check(cudaMemcpyAsync(seen.host() + i * sizeof(std::uint64_t), &header->deadline_ns,
                                sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream),
                "reading a deadline");
  }
  cuda::check(cudaStreamSynchronize(stream), "waiting for the changes");
  for (std::size_t i = 0; i < kChanges; ++i)
    EXPECT_EQ(reinterpret_cast<const std::uint64_t*>(seen.host())[i], deadline_of(i)) << i;
}

TEST(FusedGroup, RefusesWhatTheKernelsDoNotRun) {
  const auto reason = [](auto change, ErrorCode code = ErrorCode::unsupported) {
    Problem p = faults_problem();
    change(p);
    return error_of([&] { Group(p, SymmetricMemory::cuda_virtual(2, 0)); }, code);
  };
  EXPECT_THAT(reason([](Problem& p) { p.precision = Precision::bf16; }),
              AllOf(HasSubstr("precision = bf16"), HasSubstr("fp8")));
  EXPECT_THAT(reason([](Problem& p) { p.precision = Precision::mxfp4; }),
              HasSubstr("precision = mxfp4"));
  EXPECT_THAT(reason([](Problem& p) { p.activation = swiglu_oai(); }),
              HasSubstr("activation = swiglu-oai"));
  EXPECT_THAT(reason([](Problem& p) { p.ranks = 3; }, ErrorCode::disagreement),
              HasSubstr("ranks = 3"));
  const auto memory = [](auto make, ErrorCode code) { return error_of(make, code); };
  EXPECT_THAT(memory([] { SymmetricMemory::cuda_virtual(9); }, ErrorCode::invalid_argument),
              HasSubstr("ranks = 9 is outside 1..8"));
  EXPECT_THAT(memory([] { SymmetricMemory::cuda_virtual(1, 999); }, ErrorCode::invalid_argument),
              HasSubstr("device = 999"));
  EXPECT_THAT(memory(
                  [] {
                    SymmetricMemory::cuda_peers(std::vector<int>{0, 0});
                  },
                  ErrorCode::invalid_argument),
              HasSubstr("device 0 appears 2 times"));
  EXPECT_THAT(memory([] { SymmetricMemory::cuda_peers({}); }, ErrorCode::invalid_argument),
              HasSubstr("0 devices"));
}

}  // namespace
}  // namespace megamoe
