#pragma once

#include "ptx/copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

// clang-format off
// Row pull: a warp brings rows of x and their scales from their source rank into a pool slot.
// Waits for: the copies it starts. The caller has waited for the list entries and the pool slot.
// Publishes: nothing. Bulk form: on return the rows are written, by the async proxy; load form: by
//   generic stores. Scales are generic stores in both. The readers are bulk and tensor copies, so
//   the caller fences the proxy, then releases rows_ready.
// clang-format on

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
  static MEGAMOE_DEVICE int after(int slot) { return slot + 1 == kSlots ? 0 : slot + 1; }
  /// By the lane that starts the copies: the load into this slot has landed. False: patience ran
  /// out.
  MEGAMOE_DEVICE bool wait(int slot, ptx::Patience patience) {
    if (!ptx::mbarrier_wait(barrier(slot), parity >> slot & 1, patience)) return false;
    parity ^= 1U << slot;
    return true;
  }
  /// By the same lane, when it has given up: waits until its last `in_flight` loads have landed and
  /// all stores have read their pieces, so that the CTA may end. When a load does not land, the CTA
  /// may neither end nor wait for ever: the kernel ends with an error.
  MEGAMOE_DEVICE void drain(int in_flight, ptx::Patience patience) {
    int slot = next - in_flight + (next < in_flight ? kSlots : 0);
    for (int i = 0; i < in_flight; ++i) {
      // Another try: this SM may have been another kernel's while patience ran out.
      if (!wait(slot, patience) && !wait(slot, {0})) ptx::trap();
      slot = after(slot);
    }
    ptx::bulk_wait_group<0>();  // without a limit: the stores go to this GPU's own memory
  }
};

/// How far a pull has come.
struct PulledSoFar {
  int rows;       ///< that are written, in all lanes
  int in_flight;  ///< loads that were started and have not been waited for, in lane 0
};

/// The walk of one lane over the pieces of `count` rows: loads run ahead of stores.
template <class Staging, class RowSource>
struct BulkPull {
  Staging& staging;
  const RowSource& row_source;
  const PullTarget& target;
  ptx::CachePolicy policy;
  int pieces;
  int loaded = 0, load_row = 0, load_offset = 0;

  MEGAMOE_DEVICE BulkPull(Staging& s, const RowSource& source, int count, const PullTarget& to,
                          ptx::CachePolicy cache)
      : staging(s),
        row_source(source),
        target(to),
        policy(cache),
        pieces(count * ((to.row_bytes + Staging::kPieceBytes - 1) / Staging::kPieceBytes)) {}

  MEGAMOE_DEVICE std::uint32_t piece_bytes(int offset) const {
    return static_cast<std::uint32_t>(min(target.row_bytes - offset, Staging::kPieceBytes));
  }
  /// The offset of the piece after `offset`; 0 starts the next row.
  MEGAMOE_DEVICE int after(int offset) const {
    const int next = offset + Staging::kPieceBytes;
    return next < target.row_bytes ? next : 0;
  }

  MEGAMOE_DEVICE void load_next() {
    const int slot = staging.next;
    staging.next = Staging::after(slot);
    const std::uint32_t bytes = piece_bytes(load_offset);
    ptx::mbarrier_arrive_expect_tx(staging.barrier(slot), bytes);
    ptx::bulk_load(staging.piece(slot), row_source(load_row).x + load_offset, bytes,
                   staging.barrier(slot), policy);
    load_offset = after(load_offset);
    if (load_offset == 0) ++load_row;
    ++loaded;
  }
  MEGAMOE_DEVICE void start() {
    while (loaded < min(pieces, Staging::kAhead)) load_next();
  }
  /// Stores every piece as it comes. `slot` is that of the first.
  MEGAMOE_DEVICE PulledSoFar finish(int slot, ptx::Patience patience) {
    std::byte* row = target.x;
    int offset = 0;
    for (int i = 0; i < pieces; ++i) {
      if (!staging.wait(slot, patience)) {
        return {static_cast<int>((row - target.x) / target.row_bytes), loaded - i};
      }
      ptx::bulk_store(row + offset, staging.piece(slot), piece_bytes(offset));
      ptx::bulk_commit_group();
      slot = Staging::after(slot);
      offset = after(offset);
      if (offset == 0) row += target.row_bytes;
      if (loaded < pieces) {
        ptx::bulk_wait_group_read<1>();  // the slot to be filled was stored from two pieces ago
        load_next();
      }
    }
    ptx::bulk_wait_group<0>();
    return {load_row, 0};
  }
};

/// Brings `count` rows through shared memory and their scales beside them; executed by the whole
/// warp, whose lane 0 starts the copies. Fewer rows than `count` when patience ran out: then lane 0
/// has to call staging.drain() before the CTA ends.
template <class Staging, class RowSource>
MEGAMOE_DEVICE PulledSoFar pull_rows_by_bulk(Staging& staging, const RowSource& row_source,
                                             int count, const PullTarget& target,
                                             ptx::CachePolicy policy, ptx::Patience patience,
                                             int lane) {
  BulkPull<Staging, RowSource> copies(staging, row_source, count, target, policy);
  const int first_slot = staging.next;
  if (lane == 0) copies.start();
  __syncwarp();
  pull_scales(row_source, count, target, lane);
  PulledSoFar pulled = {0, 0};
  if (lane == 0) pulled = copies.finish(first_slot, patience);
  pulled.rows = __shfl_sync(0xFFFFFFFFU, pulled.rows, 0);
  return pulled;
}

}  // namespace megamoe
