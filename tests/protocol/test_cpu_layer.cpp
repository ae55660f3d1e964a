#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/protocol/cpu_case.hpp"

namespace megamoe {
namespace {

using ref::RoutingKind;

// A sanitizer looks at orders of accesses, not at values: a few of the repeats show it all of them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kEffort = 1;
constexpr std::uint64_t kRepeats = 2;
#else
constexpr int kEffort = 10;
constexpr std::uint64_t kRepeats = 50;
#endif

Problem small_problem(int ranks, int top_k = 6, Precision precision = Precision::fp8) {
  return {.ranks = ranks,
          .experts = 48,
          .top_k = top_k,
          .hidden = 256,
          .intermediate = 128,
          .max_tokens_per_rank = 200,
          .precision = precision};
}

KernelConfig config_of(const Problem& p, int block_rows, int waves = 1) {
  KernelConfig c = config_for_block_rows(p, block_rows);
  c.num_waves = waves;
  c.route_tokens = 24;  // several route chunks from 25 tokens on
  return c;
}

void expect_reference(CpuCase& layer, const ref::RandomInputs& inputs, const KernelConfig& config,
                      const std::string& what) {
  layer.stage(inputs);
  ForwardOptions options;
  options.config = &config;
  layer.expect_close(layer.run(inputs, options), layer.reference(inputs), what);
}

TEST(CpuLayer, TokenCountsBlocksAndWaves) {
  CpuCase layer(small_problem(2));
  for (const int tokens : {0, 1, 8, 48, 192}) {
    const auto inputs = equal_inputs(layer.problem(), tokens, {RoutingKind::uniform}, 1);
    const auto expected = layer.reference(inputs);
    for (const int block_rows : {8, 16, 32, 64, 128}) {
      for (const int waves : {1, 3}) {
        const KernelConfig config = config_of(layer.problem(), block_rows, waves);
        ForwardOptions options;
        options.config = &config;
        layer.stage(inputs);
        layer.expect_close(layer.run(inputs, options), expected,
                           fmt::format("{} tokens, {} rows, {} waves", tokens, block_rows, waves));
      }
    }
  }
}

TEST(CpuLayer, Ranks) {
  for (const int ranks : {1, 2, 3, 8, 16}) {
    CpuCase layer(small_problem(ranks));
    expect_reference(layer, equal_inputs(layer.problem(), 8, {RoutingKind::uniform}, 2),
                     config_of(layer.problem(), 8), fmt::format("{} ranks", ranks));
    std::vector<int> uneven;
    for (int r = 0; r < ranks; ++r) uneven.push_back(r * 7 % 20);  // rank 0 has none
    expect_reference(layer, ref::random_inputs(layer.problem(), uneven, {RoutingKind::uniform}, 3),
                     config_of(layer.problem(), 16), fmt::format("{} ranks, uneven", ranks));
  }
}

TEST(CpuLayer, TopK) {
  for (const int top_k : {1, 6, 8, 16}) {
    CpuCase layer(small_problem(3, top_k));
    expect_reference(layer, equal_inputs(layer.problem(), 20, {RoutingKind::uniform}, 4),
                     config_of(layer.problem(), 16), fmt::format("top {}", top_k));
  }
}

TEST(CpuLayer, Routings) {
  CpuCase layer(small_problem(3));
  for (const ref::Routing routing :
       {ref::Routing{RoutingKind::one_rank}, ref::Routing{RoutingKind::one_expert},
        ref::Routing{RoutingKind::skewed}, ref::Routing{RoutingKind::balanced},
        ref::Routing{RoutingKind::masked, 0.3}, ref::Routing{RoutingKind::none}}) {
    for (const int block_rows : {8, 64}) {
      expect_reference(layer, equal_inputs(layer.problem(), 130, routing, 5),
                       config_of(layer.problem(), block_rows),
                       fmt::format("{}, {} rows", name(routing), block_rows));
    }
  }
}

TEST(CpuLayer, PrecisionsActivationsBiasesAndSharedExperts) {
  for (const Precision precision :
       {Precision::fp8, Precision::bf16, Precision::mxfp4, Precision::mxfp8_mxfp4}) {
    for (const ActivationKind kind :
         {ActivationKind::swiglu, ActivationKind::swiglu_oai, ActivationKind::situ}) {
      Problem p = small_problem(2, 6, precision);
      p.intermediate = 384;  // an odd number of granules: the last L2 tile is a half
      p.hidden = 384;
      p.activation = kind == ActivationKind::swiglu_oai
                         ? swiglu_oai()
                         : Activation{.kind = kind, .beta = 4, .linear_beta = 25};
      p.shared_experts = kind == ActivationKind::situ ? 2 : 1;
      CpuCase layer(p, false, kind == ActivationKind::swiglu_oai);
      expect_reference(layer, equal_inputs(p, 40, {RoutingKind::masked, 0.2}, 6), config_of(p, 16),
                       fmt::format("{} {}", name(precision), name(kind)));
    }
  }
}

/// The extremes of what rings of these sizes allow.
std::vector<std::pair<int, int>> groups_and_lags(int pool_slots, int act_slots) {
  std::vector<std::pair<int, int>> all = {{1, 1}, {1, act_slots - 1}};
  if (pool_slots >= 2 && act_slots >= 4) all.emplace_back(2, 2);
  return all;
}

TEST(CpuLayer, TinyRingsWrapManyTimes) {
  CpuCase layer(small_problem(2));
  const auto inputs = equal_inputs(layer.problem(), 150, {RoutingKind::uniform}, 8);
  const auto expected = layer.reference(inputs);
  layer.stage(inputs);
  for (const int pool_slots : {1, 2, 3}) {
    for (const int act_slots : {2, 3, 5}) {
      for (const auto& [group, lag] : groups_and_lags(pool_slots, act_slots)) {
        KernelConfig config = config_of(layer.problem(), 16, pool_slots);
        config.pool_slots = pool_slots;
        config.act_slots = act_slots;
        config.group_blocks = group;
        config.lag_blocks = lag;
        ForwardOptions options;
        options.config = &config;
        options.num_sms = act_slots - 1;
        layer.set_delays(static_cast<std::uint64_t>(pool_slots * act_slots));
        layer.expect_close(layer.run(inputs, options), expected,
                           fmt::format("{} pool and {} act slots, groups of {}, lag {}", pool_slots,
                                       act_slots, group, lag));
      }
    }
  }
}

/// A call that is repeated.
struct RepeatCase {
  int ranks, top_k;
  std::vector<int> tokens;  ///< of each rank, the last one's of all that follow
  int block_rows, waves, ctas;
  ref::Routing routing = {RoutingKind::uniform};

  [[nodiscard]] std::vector<int> tokens_of_ranks() const {
    std::vector<int> all = tokens;
    all.resize(static_cast<std::size_t>(ranks), tokens.back());
    return all;
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} ranks, top {}, {} tokens, {}, {} rows, {} waves, {} CTAs", ranks, top_k,
                       fmt::join(tokens, "/"), name(routing), block_rows, waves, ctas);
  }
};

const RepeatCase kRepeatCases[] = {
    {1, 1, {8}, 8, 1, 1},
    {1, 16, {48}, 64, 3, 2},
    {2, 6, {0}, 8, 1, 1},
    {2, 6, {1}, 16, 3, 1},
    {2, 6, {8}, 8, 1, 1},
    {2, 8, {48}, 16, 3, 2},
    {2, 6, {192}, 64, 3, 1},
    {2, 6, {192}, 128, 1, 2, {RoutingKind::balanced}},
    {3, 6, {20}, 8, 1, 3, {RoutingKind::one_rank}},
    {3, 6, {0, 33, 7}, 32, 3, 1},
    {3, 6, {20}, 16, 1, 1, {RoutingKind::none}},
    {4, 6, {30}, 32, 1, 1, {RoutingKind::masked, 0.5}},
    {8, 6, {5}, 8, 3, 1, {RoutingKind::skewed}},
    {8, 1, {0, 9}, 16, 1, 2},
    {16, 16, {3, 0, 2}, 8, 1, 1},
};

TEST(CpuLayer, BitwiseEqualOverRepeatsWithRandomDelays) {
  for (const RepeatCase& c : kRepeatCases) {
    CpuCase layer(small_problem(c.ranks, c.top_k));
    const KernelConfig config = config_of(layer.problem(), c.block_rows, c.waves);
    const auto inputs = ref::random_inputs(layer.problem(), c.tokens_of_ranks(), c.routing, 10);
    ForwardOptions options;
    options.config = &config;
    options.num_sms = c.ctas;
    layer.stage(inputs);
    const auto first = layer.run(inputs, options);
    layer.expect_close(first, layer.reference(inputs), c.text());
    for (std::uint64_t repeat = 1; repeat <= kRepeats; ++repeat) {
      layer.set_delays(repeat);
      ASSERT_EQ(layer.run(inputs, options), first) << "repeat " << repeat << " of " << c.text();
    }
  }
}

TEST(CpuLayer, SameBitsForAnyNumberOfCtasAndAnyCapacity) {
  const Problem p = small_problem(2);
  CpuCase layer(p);
  Problem larger = p;
  larger.max_tokens_per_rank = 8 * p.max_tokens_per_rank;
  CpuCase larger_layer(larger);
  const auto inputs = equal_inputs(p, 50, {RoutingKind::uniform}, 11);
  const KernelConfig config = config_of(p, 16);
  ForwardOptions options;
  options.config = &config;
  layer.stage(inputs);
  larger_layer.stage(inputs);
  const auto first = layer.run(inputs, options);
  for (const int ctas : {1, 2, 5, 16}) {
    options.num_sms = ctas;
    EXPECT_EQ(layer.run(inputs, options), first) << ctas << " CTAs";
  }
  EXPECT_EQ(larger_layer.run(inputs, options), first);
}

TEST(CpuLayer, RanksMayChooseDifferentBlocks) {
  CpuCase layer(small_problem(2));
  const auto inputs = equal_inputs(layer.problem(), 40, {RoutingKind::uniform}, 12);
  layer.stage(inputs);
  const std::size_t row = static_cast<std::size_t>(layer.problem().hidden);
  std::vector<std::uint16_t> y(80 * row, 0x7fff);
  const KernelConfig configs[2] = {config_of(layer.problem(), 8), config_of(layer.problem(), 128)};
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      ForwardOptions options;
      options.config = &configs[r];
      layer.group().layer(r).forward(y.data() + static_cast<std::size_t>(r) * 40 * row, 40,
                                     layer.routed(r), nullptr, options);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  layer.expect_close(y, layer.reference(inputs), "blocks of 8 and of 128");
}

TEST(CpuLayer, VirtualRanksInOneLaunch) {
  for (const int ranks : {2, 4, 8}) {
    CpuCase layer(small_problem(ranks), true);
    CpuCase separate(small_problem(ranks));
    const auto inputs = equal_inputs(layer.problem(), 12, {RoutingKind::uniform}, 13);
    const KernelConfig config = config_of(layer.problem(), 8);
    ForwardOptions options;
    options.config = &config;
    options.num_sms = 2;
    layer.stage(inputs);
    separate.stage(inputs);
    for (int call = 0; call < 5; ++call)
      EXPECT_EQ(layer.run(inputs, options), separate.run(inputs, options)) << ranks;
  }
}

/// A call whose counts, routing, blocks, waves and CTAs are random; compared with the reference,
/// its statistics with the routing.
void run_random_call(CpuCase& layer, std::mt19937& rng, const std::string& what) {
  const Problem& p = layer.problem();
  std::vector<int> tokens;
  for (int r = 0; r < p.ranks; ++r)
    tokens.push_back(rng() % 4 == 0 ? 0 : static_cast<int>(rng() % 60));
  const ref::Routing routing{static_cast<RoutingKind>(rng() % 7), 0.4};
  const auto inputs = ref::random_inputs(p, tokens, routing, rng());
  const int blocks[] = {8, 16, 32, 64, 128};
  const KernelConfig config = config_of(p, blocks[rng() % 5], 1 + static_cast<int>(rng() % 3));
  std::vector<std::int64_t> stats(static_cast<std::size_t>(p.experts));
  ForwardOptions options;
  options.config = &config;
  options.num_sms = 1 + static_cast<int>(rng() % 3);
  options.recv_stats = stats.data();
  layer.stage(inputs);
  layer.expect_close(layer.run(inputs, options), layer.reference(inputs), what);
  EXPECT_EQ(stats, ref::received_rows_per_expert(inputs.view())) << what;
}

TEST(CpuLayer, TwoHundredCallsOnTwoInterleavedGroups) {
  std::mt19937 rng(14);
  CpuCase a(small_problem(3));
  CpuCase b(small_problem(2, 8, Precision::bf16));
  for (int call = 1; call <= 20 * kEffort; ++call) {
    run_random_call(a, rng, fmt::format("call {} of the first group", call));
    run_random_call(b, rng, fmt::format("call {} of the second group", call));
  }
  EXPECT_EQ(a.group().layer(0).check().epoch, 20U * kEffort);
  EXPECT_EQ(b.group().layer(1).check().epoch, 20U * kEffort);
}

TEST(CpuLayer, TwoGroupsAtTheSameTime) {
  const auto calls_of_one = [](const Problem& problem, unsigned seed) {
    std::mt19937 rng(seed);
    CpuCase layer(problem);
    layer.set_delays(seed);
    for (int call = 1; call <= 2 * kEffort; ++call)
      run_random_call(layer, rng, fmt::format("call {} of seed {}", call, seed));
  };
  std::thread other(calls_of_one, small_problem(2, 8, Precision::mxfp4), 15);
  calls_of_one(small_problem(3), 16);
  other.join();
}

}  // namespace
}  // namespace megamoe
