#pragma once

#include "ptx/copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

// Row pull: a warp brings rows of x and their scales from their source rank into a slot of the
// pool. Waits for: the copies it starts. The caller has waited for the list entries and for the
// pool slot. Publishes: nothing. Bulk form: on return the rows are written, by the async proxy;
// load form: by
//   generic stores. Scales are generic stores in both. The readers are bulk and tensor copies, so
//   the caller fences the proxy, then releases rows_ready.

namespace megamoe {

/// Where one row lies on its source rank: e4m3 [hidden], 16-byte aligned, and float [hidden/128].
struct PullRow {
  const std::byte* x;
  const float* scales;
};

/// Where rows go: consecutive rows of one block of the pool.
struct PullTarget {
  std::byte* x;   ///< of the first row; rows are `row_bytes` apart
  float* scales;  ///< of the first row in [hidden/128][block_rows]
  int row_bytes;
  int block_rows;
};

/// Copies the scales of `count` rows into the transposed layout: eight rows by four groups at once,
/// so that stores of a group are 32 contiguous bytes. row_source(i) gives row i.
template <class RowSource>
MEGAMOE_DEVICE void pull_scales(const RowSource& row_source, int count, const PullTarget& target,
                                int lane) {
  const int groups = target.row_bytes / 128;
  for (int base = 0; base < count; base += 8) {
    const int row = base + lane % 8;
    if (row >= count) continue;
    const float* const from = row_source(row).scales;
#pragma unroll 4
    for (int group = lane / 8; group < groups; group += 4) {
      target.scales[group * target.block_rows + row] = from[group];
    }
  }
}

/// Copies `bytes` (a multiple of 16) with up to eight 16-byte loads per lane in flight.
MEGAMOE_DEVICE void pull_row_by_loads(const std::byte* from, std::byte* to, int bytes, int lane) {
  constexpr int kInFlight = 8, kStep = 32 * 16;
  for (int base = lane * 16; base < bytes; base += kInFlight * kStep) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (base + i * kStep < bytes) loaded[i] = ptx::load_16(from + base + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (base + i * kStep < bytes) ptx::store_16(to + base + i * kStep, loaded[i]);
    }
  }
}

/// One warp's staging buffer for bulk copies: kSlots pieces and as many barriers. kSlots - 2 loads
/// are in flight while two stores drain.
template <int kSlotsValue, int kPieceBytesValue>
struct PullStaging {
  static constexpr int kSlots = kSlotsValue;
  static constexpr int kPieceBytes = kPieceBytesValue;
  static constexpr int kAhead = kSlots - 2;
  static constexpr int kSharedBytes = kSlots * (kPieceBytes + 8);
  static_assert(kAhead >= 1 && kPieceBytes % 128 == 0);

  std::uint32_t base;        ///< kSharedBytes of shared memory, 128-byte aligned
  std::uint32_t parity = 0;  ///< bit s: parity of slot s's next phase
  int next = 0;              ///< slot of the next load

  MEGAMOE_DEVICE std::uint32_t piece(int slot) const { return base + slot * kPieceBytes; }
  MEGAMOE_DEVICE std::uint32_t barrier(int slot) const {
    return base + kSlots * kPieceBytes + slot * 8;
  }
  /// By one thread, before a CTA-wide barrier.
  MEGAMOE_DEVICE void init() const {
    for (int s = 0; s < kSlots; ++s) ptx::mbarrier_init(barrier(s), 1);
    ptx::fence_mbarrier_init();
  }
};

/// Brings `count` rows through shared memory; executed by one lane. False when the deadline passed:
/// then copies may be under way into shared memory, which the CTA must keep until they have landed.
template <class Staging, class RowSource>
MEGAMOE_DEVICE bool pull_rows_by_bulk(Staging& staging, const RowSource& row_source, int count,
                                      const PullTarget& target, ptx::CachePolicy policy,
                                      ptx::Deadline deadline) {
  const int row_bytes = target.row_bytes;
  const int per_row = (row_bytes + Staging::kPieceBytes - 1) / Staging::kPieceBytes;
  const int total = count * per_row;
  const auto piece_bytes = [&](int offset) {
    return min(row_bytes - offset, Staging::kPieceBytes);
  };
  int load_row = 0, load_offset = 0, loaded = 0;
  const auto load_next = [&] {
    const auto bytes = static_cast<std::uint32_t>(piece_bytes(load_offset));
    ptx::mbarrier_arrive_expect_tx(staging.barrier(staging.next), bytes);
    ptx::bulk_load(staging.piece(staging.next), row_source(load_row).x + load_offset, bytes,
                   staging.barrier(staging.next), policy);
    staging.next = staging.next + 1 == Staging::kSlots ? 0 : staging.next + 1;
    load_offset += Staging::kPieceBytes;
    if (load_offset >= row_bytes) {
      load_offset = 0;
      ++load_row;
    }
    ++loaded;
  };
  int slot = staging.next;
  while (loaded < min(total, Staging::kAhead)) load_next();
  std::int64_t to_row = 0;
  int offset = 0;
  for (int i = 0; i < total; ++i) {
    const std::uint32_t phase = staging.parity >> slot & 1;
    if (!ptx::mbarrier_wait(staging.barrier(slot), phase, deadline)) return false;
    staging.parity ^= 1U << slot;
    ptx::bulk_store(target.x + to_row + offset, staging.piece(slot),
                    static_cast<std::uint32_t>(piece_bytes(offset)));
    ptx::bulk_commit_group();
    slot = slot + 1 == Staging::kSlots ? 0 : slot + 1;
    offset += Staging::kPieceBytes;
    if (offset >= row_bytes) {
      offset = 0;
      to_row += row_bytes;
    }
    if (loaded < total) {
      ptx::bulk_wait_group_read<1>();  // the slot to be filled was stored from two pieces ago
      load_next();
    }
  }
  ptx::bulk_wait_group<0>();
  return true;
}

}  // namespace megamoe
