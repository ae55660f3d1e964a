#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/local_layout.hpp"
#include "layout/map.hpp"
#include "layout/symmetric_layout.hpp"

namespace megamoe {
namespace {

constexpr Problem problem(int hidden, int intermediate, int experts, int top_k, int tokens = 8192,
                          int ranks = 8) {
  return {.ranks = ranks,
          .experts = experts,
          .top_k = top_k,
          .hidden = hidden,
          .intermediate = intermediate,
          .max_tokens_per_rank = tokens};
}
constexpr Problem kFlash = problem(4096, 2048, 256, 6);
constexpr Problem kPro = problem(7168, 3072, 384, 6);
constexpr Problem kV3 = problem(7168, 2048, 256, 8);

// Words that peers write: their offsets are part of what ranks agree on.
static_assert(symmetric_layout(kFlash).header == 0);
static_assert(symmetric_layout(kFlash).count == 3072);
static_assert(symmetric_layout(kFlash).list == 3072 + 2 * kMaxWaves * 8 * 32 * 8);
static_assert(symmetric_layout(kV3).list == symmetric_layout(kFlash).list);

double mebibytes(const Problem& p) {
  return static_cast<double>(symmetric_layout(p).bytes + local_layout(p).bytes) / (1 << 20);
}

TEST(Layout, MemoryOfTheLargeModelsStaysUnderItsTargets) {
  EXPECT_LT(mebibytes(kFlash), 500);
  EXPECT_LT(mebibytes(kPro), 830);
  EXPECT_LT(mebibytes(kV3), 1050);
}

TEST(Layout, SmallProblemsStaySmall) {
  const Problem tiny = problem(256, 128, 8, 2, 8, 2);
  EXPECT_LT(local_layout(tiny).pool_scales - local_layout(tiny).pool, 12UL * 128 * 256 + 1);
  EXPECT_LT(mebibytes(tiny), 2);
}

TEST(Layout, BuffersAreAlignedAndDoNotOverlap) {
  for (const Precision precision :
       {Precision::fp8, Precision::bf16, Precision::mxfp4, Precision::mxfp8_mxfp4}) {
    for (const int ranks : {1, 3, 8, 72}) {
      for (const int tokens : {1, 130, 8192}) {
        Problem p = problem(640, 1408, 9 * ranks, 7, tokens, ranks);
        p.precision = precision;
        p.shared_experts = tokens % 2;
        std::size_t end = 0;
        const auto visit = [&](const BufferInfo& b) {
          EXPECT_EQ(b.offset % 1024, 0U) << b.name;
          EXPECT_GE(b.offset, end) << b.name;
          end = b.offset + b.bytes;
        };
        EXPECT_GE(walk_symmetric(p, visit).bytes, end);
        end = 0;
        EXPECT_GE(walk_local(p, visit).bytes, end);
      }
    }
  }
}

/// The map of one problem of each kind. When this fails, either the move was an accident, or
/// kLayoutVersion must change: then run this test with MEGAMOE_UPDATE_GOLDEN=1, which refuses to
/// keep the old version.
TEST(Layout, MovesOnlyWithItsVersion) {
  Problem shared = kV3;
  shared.shared_experts = 1;
  Problem bf16 = problem(2048, 768, 128, 8, 1000, 4);
  bf16.precision = Precision::bf16;
  std::string now;
  for (const Problem& p : {kFlash, kPro, kV3, shared, bf16}) now += layout_map(p) + "\n";
  const std::string path = MEGAMOE_SOURCE_DIR "/tests/protocol/layout_golden.txt";
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  if (std::getenv("MEGAMOE_UPDATE_GOLDEN") != nullptr && golden.str() != now) {
    const std::string version_line = now.substr(0, now.find('\n') + 1);
    ASSERT_FALSE(golden.str().starts_with(version_line))
        << "change kLayoutVersion before updating the golden map";
    std::ofstream(path) << now;
    return;
  }
  EXPECT_EQ(golden.str(), now);
}

}  // namespace
}  // namespace megamoe
