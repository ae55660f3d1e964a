#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/plan.hpp"
#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::protocol {
namespace {

struct Tables {
  std::vector<u32> rows, blocks, chunks;
  Plan plan;

  Tables(const std::vector<u32>& rows_per_expert, u32 block_rows, u32 pull_rows, u32 first_block)
      : rows(rows_per_expert.size()), blocks(rows.size()), chunks(rows.size()) {
    plan = {static_cast<u32>(rows.size()),
            block_rows,
            pull_rows,
            first_block,
            rows.data(),
            blocks.data(),
            chunks.data()};
    make_plan(plan, [&](u32 e) { return rows_per_expert[e]; });
  }
};

/// Calls fn for every list of `experts` row counts below `limit`.
template <class Fn>
void for_all_counts(u32 experts, u32 limit, Fn fn) {
  std::vector<u32> counts(experts, 0);
  for (;;) {
    fn(counts);
    u32 e = 0;
    while (e < experts && ++counts[e] == limit) counts[e++] = 0;
    if (e == experts) return;
  }
}

/// Blocks and chunks of `counts` by brute force, compared with the plan's maps.
void expect_plan_covers(const std::vector<u32>& counts, u32 block_rows, u32 pull_rows) {
  const Tables t(counts, block_rows, pull_rows, 5);
  u32 block = 0;
  u32 ticket = 0;
  for (u32 e = 0; e < counts.size(); ++e) {
    for (u32 first = 0; first < counts[e]; first += block_rows, ++block) {
      const u32 rows = std::min(block_rows, counts[e] - first);
      const Block b = t.plan.block(block);
      ASSERT_EQ(std::make_tuple(b.expert, b.row_in_expert, b.rows),
                std::make_tuple(e, first, rows));
      u32 units = 0;
      for (u32 row = 0; row < rows; row += pull_rows, ++ticket) {
        const PullChunk c = t.plan.chunk(ticket);
        ASSERT_EQ(std::make_tuple(c.block, c.expert, c.row_in_expert, c.row_in_block, c.rows),
                  std::make_tuple(block + 5, e, first + row, row, std::min(pull_rows, rows - row)));
        units += c.ready_units;
      }
      ASSERT_EQ(units, block_rows);
    }
  }
  ASSERT_EQ(t.plan.num_blocks(), block);
  ASSERT_EQ(t.plan.num_chunks(), ticket);
  ASSERT_EQ(t.plan.num_rows(), std::accumulate(counts.begin(), counts.end(), 0U));
}

TEST(Plan, MapsOfAllSmallCountsAreExact) {
  for_all_counts(3, 19, [](const std::vector<u32>& counts) {
    expect_plan_covers(counts, 8, 8);
    expect_plan_covers(counts, 8, 4);
    expect_plan_covers(counts, 16, 2);
  });
  for_all_counts(5, 4, [](const std::vector<u32>& counts) { expect_plan_covers(counts, 2, 1); });
}

TEST(Plan, ManyExperts) {
  std::vector<u32> counts(260);
  for (u32 e = 0; e < counts.size(); ++e) counts[e] = e * 37 % 300 * (e % 3);
  for (const u32 block_rows : {8U, 16U, 32U, 64U, 128U}) expect_plan_covers(counts, block_rows, 8);
}

GemmSchedule schedule_of(u32 blocks, u32 l1_tiles, u32 l2_tiles, u32 group, u32 lag) {
  Geometry g;
  g.l1_tiles = l1_tiles;
  g.l2_tiles = l2_tiles;
  g.group_blocks = group;
  g.lag_blocks = lag;
  return {g, blocks};
}

/// Every tile once, L2(b) behind L1(b), and, what the rings need: L2(b - slots) before L1(b) with
/// slots = lag + group of the act ring, L1(b - slots) before L1(b) with slots = group of the pool.
void expect_schedule(u32 blocks, u32 l1_tiles, u32 l2_tiles, u32 group, u32 lag) {
  const GemmSchedule s = schedule_of(blocks, l1_tiles, l2_tiles, group, lag);
  std::vector<int> first_l1(blocks, -1);
  std::vector<int> last_l1(blocks, -1);
  std::vector<int> first_l2(blocks, -1);
  std::vector<int> last_l2(blocks, -1);
  std::set<std::tuple<bool, u32, u32>> seen;
  for (u32 ticket = 0; ticket < s.num_tickets(); ++ticket) {
    const GemmTile t = s.tile(ticket);
    ASSERT_LT(t.block, blocks);
    ASSERT_LT(t.tile, t.is_l2 ? l2_tiles : l1_tiles);
    ASSERT_TRUE(seen.emplace(t.is_l2, t.block, t.tile).second);
    auto& first = t.is_l2 ? first_l2 : first_l1;
    auto& last = t.is_l2 ? last_l2 : last_l1;
    if (first[t.block] < 0) first[t.block] = static_cast<int>(ticket);
    last[t.block] = static_cast<int>(ticket);
  }
  ASSERT_EQ(seen.size(), blocks * (l1_tiles + l2_tiles));
  for (u32 b = 0; b < blocks; ++b) {
    ASSERT_LT(last_l1[b], first_l2[b]);
    if (b >= lag + group) {
      ASSERT_LT(last_l2[b - lag - group], first_l1[b]);
    }
    if (b >= group) {
      ASSERT_LT(last_l1[b - group], first_l1[b]);
    }
  }
}

TEST(GemmSchedule, AllSmallShapes) {
  for (u32 blocks = 0; blocks <= 7; ++blocks) {
    for (u32 l1_tiles = 1; l1_tiles <= 4; ++l1_tiles) {
      for (u32 l2_tiles = 1; l2_tiles <= 4; ++l2_tiles) {
        for (u32 group = 1; group <= 4; ++group) {
          for (u32 lag = group; lag <= 8; lag += group)
            expect_schedule(blocks, l1_tiles, l2_tiles, group, lag);
        }
      }
    }
  }
}

TEST(GemmSchedule, TilesOfOneColumnOfAGroupAreAdjacent) {
  const GemmSchedule s = schedule_of(7, 3, 2, 4, 4);
  for (u32 ticket = 0; ticket < 12; ++ticket) {
    EXPECT_EQ(s.tile(ticket).block, ticket % 4);
    EXPECT_EQ(s.tile(ticket).tile, ticket / 4);
  }
  EXPECT_EQ(s.tile(12).block, 4U);  // the last group has three blocks
  EXPECT_EQ(s.tile(15).block, 4U);
  EXPECT_EQ(s.tile(15).tile, 1U);
}

TEST(Ring, TargetsGrowByOneGenerationPerRound) {
  Geometry g;
  g.pool_slots = 3;
  g.act_slots = 2;
  g.block_rows = 16;
  g.intermediate_granules = 5;
  g.hidden_granules = 7;
  EXPECT_EQ(rows_target(g, 2), 16U);
  EXPECT_EQ(rows_target(g, 3), 32U);
  EXPECT_EQ(l1_target(g, 1), 5U);
  EXPECT_EQ(l1_target(g, 2), 10U);
  EXPECT_EQ(l2_target(g, 5), 21U);
}

TEST(RouteWave, CoversAllTokensOnce) {
  Geometry g;
  g.capacity = 40;
  for (u32 waves = 1; waves <= 4; ++waves) {
    for (u32 route_tokens : {1U, 3U, 64U}) {
      for (u32 tokens = 0; tokens <= 40; ++tokens) {
        g.num_waves = waves;
        g.route_tokens = route_tokens;
        g.contributions = 3;
        u32 next = 0;
        for (u32 wave = 0; wave < waves; ++wave) {
          const RouteWave w = route_wave(g, tokens, wave, 4);
          ASSERT_EQ(w.first_token, next);
          next += w.num_tokens;
          ASSERT_GE(w.chunks, 1U);
          ASSERT_LE(w.chunks, 4U);
          ASSERT_GE(w.chunks * w.chunk_tokens, w.num_tokens);
          ASSERT_LE(w.num_tokens * g.contributions, list_base(g, wave + 1) - list_base(g, wave));
        }
        ASSERT_EQ(next, tokens);
      }
    }
  }
}

}  // namespace
}  // namespace megamoe::protocol
