#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/weights.hpp"

namespace megamoe {
namespace {

std::vector<std::byte> numbered_rows(int rows, std::size_t row_bytes) {
  std::vector<std::byte> data(static_cast<std::size_t>(rows) * row_bytes);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::size_t row = i / row_bytes;
    data[i] = static_cast<std::byte>((row * 31 + (row >> 8) * 7 + i % row_bytes) & 0xffU);
  }
  return data;
}

TEST(InterleavedRow, ByHand) {
  // I = 16: gates 0..7, ups of channels 0..7, gates 8..15, ups of channels 8..15.
  EXPECT_EQ(interleaved_row(0, 16), 0);
  EXPECT_EQ(interleaved_row(7, 16), 7);
  EXPECT_EQ(interleaved_row(8, 16), 16);
  EXPECT_EQ(interleaved_row(16, 16), 8);
  EXPECT_EQ(interleaved_row(31, 16), 31);
}

TEST(InterleavedRow, IsAPermutation) {
  for (int intermediate : {128, 640, 1408, 2944}) {
    std::vector<int> seen(static_cast<std::size_t>(2 * intermediate), 0);
    for (int row = 0; row < 2 * intermediate; ++row)
      ++seen.at(static_cast<std::size_t>(interleaved_row(row, intermediate)));
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  }
}

TEST(InterleaveRows, CopiesEachRowToItsPlace) {
  for (int intermediate : {128, 640, 1408}) {
    for (std::size_t row_bytes : {std::size_t{1}, std::size_t{16}, std::size_t{100}}) {
      const auto from = numbered_rows(2 * intermediate, row_bytes);
      std::vector<std::byte> to(from.size());
      interleave_rows(from.data(), to.data(), intermediate, row_bytes);
      for (int row = 0; row < 2 * intermediate; ++row) {
        const auto source = static_cast<std::size_t>(row) * row_bytes;
        const auto target =
            static_cast<std::size_t>(interleaved_row(row, intermediate)) * row_bytes;
        ASSERT_EQ(std::memcmp(&from[source], &to[target], row_bytes), 0) << row;
      }
    }
  }
}

TEST(InterleaveRows, InPlaceGivesTheSame) {
  for (int intermediate : {128, 640, 1408, 2048, 2944}) {
    const std::size_t row_bytes = 24;
    auto data = numbered_rows(2 * intermediate, row_bytes);
    std::vector<std::byte> copied(data.size());
    interleave_rows(data.data(), copied.data(), intermediate, row_bytes);
    interleave_rows(data.data(), data.data(), intermediate, row_bytes);
    EXPECT_EQ(data, copied) << intermediate;
  }
}

TEST(ExpertBytes, FollowTheTable) {
  // H = 256, I = 384: w1 has 768 x 256 = 196608 elements, w2 98304.
  const ExpertBytes fp8 = expert_bytes(Precision::fp8, 256, 384);
  EXPECT_EQ(fp8.w1, 196608U);
  EXPECT_EQ(fp8.w1_scales, 6U * 2 * 4);
  EXPECT_EQ(fp8.w2, 98304U);
  EXPECT_EQ(fp8.w2_scales, 2U * 3 * 4);
  const ExpertBytes bf16 = expert_bytes(Precision::bf16, 256, 384);
  EXPECT_EQ(bf16.w1, 393216U);
  EXPECT_EQ(bf16.w1_scales, 0U);
  EXPECT_EQ(bf16.w2, 196608U);
  EXPECT_EQ(bf16.w2_scales, 0U);
  for (Precision precision : {Precision::mxfp4, Precision::mxfp8_mxfp4}) {
    const ExpertBytes mx = expert_bytes(precision, 256, 384);
    EXPECT_EQ(mx.w1, 98304U);
    EXPECT_EQ(mx.w1_scales, 768U * 8);
    EXPECT_EQ(mx.w2, 49152U);
    EXPECT_EQ(mx.w2_scales, 256U * 12);
  }
  // The largest shape does not overflow 32 bits.
  EXPECT_EQ(expert_bytes(Precision::bf16, 16384, 32768).w1, std::size_t{1} << 31);
}

}  // namespace
}  // namespace megamoe
