#pragma once

#include "roles/courier.cuh"
#include "roles/cta.cuh"
#include "roles/decode_epilogue.cuh"
#include "roles/done_ring.cuh"
#include "roles/ring.cuh"

// clang-format off
// Shared memory of a CTA of the fused kernel, from its start:
//   ring         stages of operands and their barriers; the router's counters before the roles part
//   staging      prefill: pieces of rows on their way, per courier
//   amax         decode: largest magnitudes of a tile's tokens
//   done ring    finished tiles on their way to the publisher
//   pulled rows  sources of a chunk's rows, per courier
//   state        what all roles share
// clang-format on

namespace megamoe {

inline constexpr int kCouriers = 2;  ///< warps per CTA

template <class Shape>
class SharedPlan {
  using Staging = PullStaging<5, 2048>;
  static constexpr int round(int bytes) { return (bytes + 127) / 128 * 128; }

 public:
  static constexpr bool kBulkPull = Shape::kFamily == Family::prefill;

 private:
  static constexpr int kStagingBytes = kBulkPull ? round(Staging::kSharedBytes) : 0;
  static constexpr int kAmaxBytes =
      Shape::kFamily == Family::decode ? round(3 * 4 * Shape::kTokens) : 0;
  static constexpr int kRowsBytes = sizeof(PulledRows);
  static constexpr int kBesideRing = kCouriers * (kStagingBytes + kRowsBytes) + kAmaxBytes +
                                     round(DoneRing<Shape>::kBytes) +
                                     round(static_cast<int>(sizeof(CtaState)));

 public:
  using RingType = Ring<Shape, stages_in<Shape>(kSharedBytes - kBesideRing)>;
  static constexpr int kRingBytes = RingType::Layout::kBytes;
  static constexpr int kScratchBytes = RingType::Layout::kBarriers;  ///< before the roles part
  static constexpr int kBytes = kRingBytes + kBesideRing;
  static_assert(kBytes <= kSharedBytes && RingType::kStages >= 3);

  MEGAMOE_DEVICE explicit SharedPlan(std::byte* base) : base_(base) {}

  MEGAMOE_DEVICE RingType ring() const { return {ptx::shared_address(base_)}; }
  MEGAMOE_DEVICE Staging staging(int courier) const {
    return {ptx::shared_address(base_ + kStagingAt + courier * kStagingBytes)};
  }
  MEGAMOE_DEVICE std::uint32_t* amax_words() const {
    return reinterpret_cast<std::uint32_t*>(base_ + kAmaxAt);
  }
  MEGAMOE_DEVICE DoneRing<Shape> done() const { return {ptx::shared_address(base_ + kDoneAt)}; }
  MEGAMOE_DEVICE PulledRows& pulled_rows(int courier) const {
    return reinterpret_cast<PulledRows*>(base_ + kRowsAt)[courier];
  }
  MEGAMOE_DEVICE CtaState& state() const { return *reinterpret_cast<CtaState*>(base_ + kStateAt); }

  /// By all threads, before a CTA-wide barrier.
  MEGAMOE_DEVICE void init(int thread) const {
    if (thread == 0) {
      done().init();
      if constexpr (kBulkPull) {
        for (int courier = 0; courier < kCouriers; ++courier) staging(courier).init();
      }
      ring().init();
    }
    if (kAmaxBytes > 0 && thread < Shape::kTokens) amax_words()[thread] = 0;
  }

 private:
  static constexpr int kStagingAt = kRingBytes;
  static constexpr int kAmaxAt = kStagingAt + kCouriers * kStagingBytes;
  static constexpr int kDoneAt = kAmaxAt + kAmaxBytes;
  static constexpr int kRowsAt = kDoneAt + round(DoneRing<Shape>::kBytes);
  static constexpr int kStateAt = kRowsAt + kCouriers * kRowsBytes;

  std::byte* base_;
};

}  // namespace megamoe
