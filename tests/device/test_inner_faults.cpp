// Waits inside a CTA that end in vain: what they leave for the host, and no copy under way.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_case.hpp"
#include "tests/device/impatient_pull.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// What the ranks say after a call in blocks of `block_rows` that could not end; and that they say
/// it in time.
std::string faults_of_a_call(GpuCase& layer, int block_rows) {
  const KernelConfig config = config_for_block_rows(layer.problem(), block_rows);
  ForwardOptions options = with_config(&config);
  options.deadline = 50ms;
  options.first_deadline = 50ms;
  layer.stage(equal_inputs(layer.problem(), 5, {ref::RoutingKind::uniform}, 1));
  const auto start = std::chrono::steady_clock::now();
  layer.start_call(options);
  layer.group().synchronize();
  // The longest of them: seven times (two deadlines and a second).
  EXPECT_LT(std::chrono::steady_clock::now() - start, 15s);
  std::string texts;
  for (int r = 0; r < layer.problem().ranks; ++r)
    texts += error_of([&] { layer.group().layer(r).check(); }, ErrorCode::fault) + '\n';
  return texts;
}

TEST(InnerFaults, MathThatGetsNoStageSaysSo) {
  GpuCase layer(faults_problem());
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(faults_of_a_call(layer, 16),
                AllOf(HasSubstr("call 1: the math of CTA "),
                      HasSubstr("gave up waiting for a stage of its CTA's ring")));
    layer.group().reset();
  }
}

TEST(InnerFaults, APublisherThatGetsNoEndSaysSo) {
  GpuCase layer(faults_problem());
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(faults_of_a_call(layer, 128),
                AllOf(HasSubstr("call 1: the publisher of CTA "),
                      HasSubstr("gave up waiting for finished tile")));
    layer.group().reset();
  }
}

TEST(InnerFaults, ACourierThatGivesUpLeavesNoCopyUnderWay) {
  constexpr int kRowBytes = 5 * 1024, kPiecesPerRow = 3;  // the last piece of a row is half a one
  constexpr std::size_t kBytes = std::size_t{kImpatientRows} * kRowBytes;
  std::vector<std::uint8_t> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256 * 13 + 1);
  const GpuArray<std::uint8_t> from(0, std::span<const std::uint8_t>(bytes));
  const GpuArray<float> scales(0, kBytes / 128), scales_out(0, kBytes / 128);
  for (int give_up_at = 0; give_up_at < kImpatientRows * kPiecesPerRow; ++give_up_at) {
    const GpuArray<std::uint8_t> to(0, kBytes), again(0, kBytes);
    const GpuArray<std::uint8_t> left(0, sizeof(ImpatientPull));
    cuda::check(launch_impatient_pull(from.data(), scales.data(), to.data(), again.data(),
                                      scales_out.data(), kRowBytes, give_up_at,
                                      reinterpret_cast<ImpatientPull*>(left.data())),
                "pulling");
    cuda::check(cudaDeviceSynchronize(), "pulling");
    ImpatientPull pull;
    const auto left_bytes = left.download();
    std::memcpy(&pull, left_bytes.data(), sizeof(pull));
    EXPECT_EQ(pull.rows, give_up_at / kPiecesPerRow) << give_up_at;
    const int all = kImpatientRows * kPiecesPerRow;
    EXPECT_EQ(pull.in_flight, std::min(kImpatientSlots - 2, all - give_up_at)) << give_up_at;
    // Every piece that was on its way is in its slot.
    for (int piece = give_up_at; piece < give_up_at + pull.in_flight; ++piece) {
      const int offset = piece % kPiecesPerRow * kImpatientPieceBytes;
      const int size = std::min(kImpatientPieceBytes, kRowBytes - offset);
      EXPECT_EQ(std::memcmp(pull.staging + piece % kImpatientSlots * kImpatientPieceBytes,
                            bytes.data() + piece / kPiecesPerRow * kRowBytes + offset,
                            static_cast<std::size_t>(size)),
                0)
          << "given up at piece " << give_up_at << ", piece " << piece;
    }
    EXPECT_EQ(again.download(), bytes) << "the staging was used again after piece " << give_up_at;
  }
}

}  // namespace
}  // namespace megamoe
