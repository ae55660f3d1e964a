#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/roofline.hpp"
#include "megamoe/error.hpp"

namespace megamoe {
namespace {

using ::testing::HasSubstr;

constexpr Problem kV3{.ranks = 8,
                      .experts = 256,
                      .top_k = 8,
                      .hidden = 7168,
                      .intermediate = 2048,
                      .max_tokens_per_rank = 8192};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

Precision precision_of(const std::string& weights) {
  if (weights == "bf16") return Precision::bf16;
  return weights == "mxfp4" ? Precision::mxfp4 : Precision::fp8;
}

void expect_close(double got, double want, const char* what, const std::string& line) {
  EXPECT_LE(std::abs(got - want), 1e-9 * std::abs(want)) << what << ": " << line;
}

// The values come from an independent program with the same formulas.
TEST(Roofline, AgreesWithTheGoldenTable) {
  std::ifstream file(MEGAMOE_SOURCE_DIR "/tests/host/roofline_golden.csv");
  ASSERT_TRUE(file.good());
  std::string line;
  std::getline(file, line);
  std::set<std::string> gpu_names, modes, weights;
  int num_points = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> cell = split(line);
    ASSERT_EQ(cell.size(), 22U) << line;
    const Problem p{.ranks = std::stoi(cell[5]),
                    .experts = std::stoi(cell[3]),
                    .top_k = std::stoi(cell[4]),
                    .hidden = std::stoi(cell[1]),
                    .intermediate = std::stoi(cell[2]),
                    .max_tokens_per_rank = 8192,
                    .precision = precision_of(cell[7])};
    const Gpu* gpu = find_gpu(cell[8]);
    ASSERT_NE(gpu, nullptr) << line;
    const GpuRates& rates = cell[9] == "peak" ? gpu->peak : gpu->practical;
    const LayerWork w = mean_work(p, std::stol(cell[6]));
    const Bound b =
        time_bound(w, rates, p.precision, cell[10] == "1" ? Copies::per_rank : Copies::per_expert);
    const auto want = [&](int column) { return std::stod(cell[static_cast<std::size_t>(column)]); };
    expect_close(w.experts_hit, want(11), "experts hit", line);
    expect_close(w.weight_bytes, want(12), "weight bytes", line);
    expect_close(w.flops, want(13), "flops", line);
    expect_close(w.dispatch_bytes, want(14), "dispatch bytes", line);
    expect_close(w.combine_link_bytes, want(15), "combine bytes", line);
    expect_close(w.dedup_link_bytes, want(16), "one copy per rank", line);
    expect_close(w.hbm_bytes() - w.weight_bytes, want(17), "activation bytes", line);
    expect_close(b.hbm_us, want(18), "HBM time", line);
    expect_close(b.nvlink_us, want(19), "NVLink time", line);
    expect_close(b.tensor_us, want(20), "tensor time", line);
    expect_close(b.us, want(21), "bound", line);
    gpu_names.insert(cell[8]);
    modes.insert(cell[9]);
    weights.insert(cell[7]);
    ++num_points;
  }
  EXPECT_EQ(num_points, 600);
  EXPECT_EQ(gpu_names.size(), gpus().size());
  EXPECT_EQ(modes.size(), 2U);
  EXPECT_EQ(weights.size(), 3U);
}

TEST(Roofline, PublishedExampleOfV3) {
  const Bound b = time_bound(mean_work(kV3, 8192), find_gpu("H200")->practical, kV3.precision);
  EXPECT_NEAR(b.us, 4123, 1);
  EXPECT_EQ(b.limit, Limit::tensor);
}

TEST(Roofline, SharedExpertsAddRowsButNoLinkBytes) {
  Problem with = kV3;
  with.shared_experts = 1;
  const LayerWork plain = mean_work(kV3, 100);
  const LayerWork more = mean_work(with, 100);
  EXPECT_DOUBLE_EQ(more.rows, plain.rows + 100);
  EXPECT_DOUBLE_EQ(more.experts_hit, plain.experts_hit + 1);
  EXPECT_DOUBLE_EQ(more.link_bytes, plain.link_bytes);
  EXPECT_DOUBLE_EQ(more.flops - plain.flops, 6.0 * 7168 * 2048 * 100);
}

TEST(Roofline, UnknownGpuIsNull) { EXPECT_EQ(find_gpu("h200"), nullptr); }

// Two ranks with two experts each; rank 0: tokens {0,2}, {2,3}, {-1,1}; rank 1: token {0,9}.
TEST(CountLoads, ByHand) {
  const Problem p{.ranks = 2,
                  .experts = 4,
                  .top_k = 2,
                  .hidden = 128,
                  .intermediate = 128,
                  .max_tokens_per_rank = 4};
  const std::vector<std::int64_t> first = {0, 2, 2, 3, -1, 1};
  const std::vector<std::int64_t> second = {0, 9};
  const std::vector<std::span<const std::int64_t>> ids = {first, second};
  const std::vector<RankLoad> loads = count_loads(p, ids);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].tokens, 3);
  EXPECT_EQ(loads[0].rows_sent, 5);
  EXPECT_EQ(loads[0].rows_received, 3);
  EXPECT_EQ(loads[0].experts_hit, 2);
  EXPECT_EQ(loads[0].remote_sent, 3);
  EXPECT_EQ(loads[0].remote_received, 1);
  EXPECT_EQ(loads[0].copies_sent, 2);
  EXPECT_EQ(loads[0].copies_received, 1);
  EXPECT_EQ(loads[1].rows_sent, 1);
  EXPECT_EQ(loads[1].rows_received, 3);
  EXPECT_EQ(loads[1].experts_hit, 2);
  EXPECT_EQ(loads[1].copies_received, 2);
  // Rank 0 sends 3 rows of 128 + 4 bytes and gets 3 x 256 back; it serves one row the other way.
  const LayerWork w = actual_work(p, loads[0]);
  EXPECT_DOUBLE_EQ(w.link_bytes, std::max(3 * 132.0 + 256.0, 132.0 + 3 * 256.0));
  EXPECT_DOUBLE_EQ(w.dedup_link_bytes, std::max(2 * 132.0 + 256.0, 132.0 + 2 * 256.0));
}

TEST(CountLoads, RefusesWhatDoesNotMatch) {
  const std::vector<std::int64_t> ids(9, 0);
  std::vector<std::span<const std::int64_t>> spans(7, ids);
  const auto message = [&] {
    try {
      count_loads(kV3, spans);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message(), HasSubstr("7 ranks given for 8 ranks"));
  spans.emplace_back(ids);
  EXPECT_THAT(message(), HasSubstr("9 expert ids, not a multiple of top_k = 8"));
}

// A routing in which every rank sends every other the same number of rows is its own mean.
TEST(ActualBound, EqualsTheMeanForABalancedRouting) {
  Problem p = kV3;
  p.ranks = 4;
  p.experts = 16;
  p.top_k = 4;
  std::vector<std::int64_t> ids;
  for (int token = 0; token < 16; ++token) {
    for (int k = 0; k < 4; ++k) ids.push_back(k * 4 + token % 4);
  }
  const std::vector<std::span<const std::int64_t>> spans(4, ids);
  const GpuRates& rates = find_gpu("H100")->practical;
  const LayerWork mean = mean_work(p, 16);
  for (const RankLoad& load : count_loads(p, spans)) {
    const LayerWork work = actual_work(p, load);
    EXPECT_DOUBLE_EQ(work.rows, mean.rows);
    EXPECT_DOUBLE_EQ(work.flops, mean.flops);
    EXPECT_DOUBLE_EQ(work.link_bytes, mean.link_bytes);
    EXPECT_DOUBLE_EQ(work.combine_bytes, mean.combine_bytes);
    EXPECT_EQ(work.experts_hit, 4);
  }
  const std::vector<RankLoad> loads = count_loads(p, spans);
  EXPECT_DOUBLE_EQ(time_bound(p, loads, rates).us,
                   time_bound(actual_work(p, loads[0]), rates, p.precision).us);
}

TEST(ActualBound, IsThatOfTheBusiestRank) {
  std::vector<std::vector<std::int64_t>> ids(8);
  for (int token = 0; token < 512; ++token) {
    for (int k = 0; k < 8; ++k) ids[5].push_back((token + k) % 32);  // all on rank 0
  }
  const std::vector<std::span<const std::int64_t>> spans(ids.begin(), ids.end());
  const std::vector<RankLoad> loads = count_loads(kV3, spans);
  const GpuRates& rates = find_gpu("H200")->practical;
  const Bound whole = time_bound(kV3, loads, rates);
  EXPECT_DOUBLE_EQ(whole.us, time_bound(actual_work(kV3, loads[0]), rates, kV3.precision).us);
  EXPECT_EQ(loads[5].copies_sent, 512);
  EXPECT_EQ(loads[5].remote_sent, 512 * 8);
  EXPECT_LT(time_bound(kV3, loads, rates, Copies::per_rank).nvlink_us, whole.nvlink_us / 7.9);
}

}  // namespace
}  // namespace megamoe
