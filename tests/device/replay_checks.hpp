#pragma once

#include <random>

#include "tests/device/captured_call.hpp"

namespace megamoe {

/// Three captured calls of different token counts share a layer: `replays` replays in random order
/// with changed inputs, mixed with eager calls, each equal to the eager call of the same input.
inline void expect_replays_equal_eager(GpuCase& layer, int replays) {
  const Problem& p = layer.problem();
  const auto ranks = static_cast<std::size_t>(p.ranks);
  std::vector<int> unequal(ranks), empty_source(ranks, 60);
  for (std::size_t r = 0; r < ranks; ++r) unequal[r] = static_cast<int>(5 + 41 * r % 90);
  empty_source[0] = 0;
  const std::vector<std::vector<int>> counts = {std::vector<int>(ranks, 33), unequal, empty_source};
  const KernelConfig configs[] = {config_for_block_rows(p, 8), config_for_block_rows(p, 32),
                                  config_for_block_rows(p, 128)};
  std::vector<std::unique_ptr<CapturedCall>> graphs;
  for (std::size_t i = 0; i < 3; ++i) {
    layer.stage(ref::random_inputs(p, counts[i], {ref::RoutingKind::uniform}, 1));
    ASSERT_NO_THROW(layer.run(with_config(&configs[i])));
    graphs.push_back(std::make_unique<CapturedCall>(layer, with_config(&configs[i])));
  }
  std::mt19937 rng(4);
  const ref::Routing routings[] = {{ref::RoutingKind::balanced},
                                   {ref::RoutingKind::skewed},
                                   {ref::RoutingKind::none},
                                   {ref::RoutingKind::one_rank},
                                   {ref::RoutingKind::masked, 0.4}};
  for (int replay = 0; replay < replays; ++replay) {
    const std::size_t which = rng() % 3;
    const ref::Routing& routing = routings[rng() % 5];
    const auto inputs = ref::random_inputs(p, counts[which], routing, rng());
    const std::string what =
        fmt::format("replay {} of graph {}, {}", replay, which, ref::name(routing));
    layer.stage(inputs);
    std::vector<std::uint16_t> eager, replayed;
    ASSERT_NO_THROW(eager = layer.run(with_config(&configs[which]))) << what;
    if (rng() % 2 == 0) {  // another call in between
      layer.stage(ref::random_inputs(p, counts[which], {ref::RoutingKind::uniform}, rng()));
      ASSERT_NO_THROW(layer.run(with_config(&configs[(which + 1) % 3]))) << what;
      layer.upload(inputs);
    }
    for (int r = 0; r < p.ranks; ++r) layer.clear_y(r);
    graphs[which]->start_replay();
    graphs[which]->wait();
    ASSERT_NO_THROW(replayed = layer.finish_call()) << what;
    ASSERT_EQ(replayed, eager) << what;
  }
}

inline Problem replay_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 24,
          .top_k = 5,
          .hidden = 640,
          .intermediate = 256,
          .max_tokens_per_rank = 100};
}

}  // namespace megamoe
