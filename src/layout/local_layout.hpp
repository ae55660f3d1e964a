#pragma once

#include <cstddef>
#include <cstdint>

#include "config/kernel_config.hpp"
#include "config/rings.hpp"
#include "layout/carver.hpp"
#include "layout/elements.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Route chunks of one wave: the tables of their counts are sized for it.
inline constexpr int kMaxRouteChunks = 64;

/// Words of one rank that only its own CTAs and its host touch; outside the parity sets.
struct LocalHeader {
  /// {epoch, start number}: one atomic add at entry returns both; the last CTA out stores {epoch +
  /// 1, 0}.
  alignas(128) std::uint64_t start;
  /// Ranks of this launch whose last CTA is out (virtual ranks); kept by the launch's first rank.
  alignas(128) std::uint32_t ranks_out;
  /// 0, then 1 once a CTA has claimed the right to write the fault record.
  alignas(128) std::uint32_t fault_claim;
  /// Reset generation, from 1; written by the host while nothing runs.
  alignas(128) std::uint32_t generation;
  /// How long a wait of a CUDA kernel may last, and in the first call after creation or reset;
  /// written by the host between calls.
  std::uint64_t deadline_ns;
  std::uint64_t first_deadline_ns;
  /// 0, then 1 once an expert id out of range was recorded in the three words that follow.
  alignas(128) std::uint32_t bad_id_claim;
  std::uint32_t bad_id_token;
  std::uint32_t bad_id_slot;
  std::int64_t bad_id_value;
};

/// Tickets and counters of one call parity. Call n uses set n & 1; call n + 1 clears it.
struct ParityWords {
  alignas(128) std::uint32_t clear_ticket;
  alignas(128) std::uint32_t exit_count;
  alignas(128) std::uint32_t route_ticket[kMaxWaves];
  alignas(128) std::uint32_t route_counted[kMaxWaves];
  alignas(128) std::uint32_t pull_ticket[kMaxWaves];
  alignas(128) std::uint32_t gemm_ticket[kMaxWaves];
  alignas(128) std::uint32_t sum_ticket[kMaxWaves];
};

/// Byte offsets of one rank's local buffers. Depends on the Problem only.
struct LocalLayout {
  std::size_t header = 0;  ///< LocalHeader
  std::size_t words = 0;   ///< ParityWords [2]
  std::size_t rows_ready =
      0;                    ///< u32 [2][pool slots at 8 rows]: rows published, generations added up
  std::size_t l1_done = 0;  ///< u32 [2][act slots at 8 rows]: intermediate granules stored
  std::size_t l2_done = 0;  ///< u32 [2][act slots at 8 rows]: hidden granules computed
  std::size_t expected = 0;     ///< u64 {epoch, rows x granules so far} [2][waves][dst ranks]
  std::size_t chunk_count = 0;  ///< u32 [waves][kMaxRouteChunks][ranks][local experts]
  std::size_t pool = 0;         ///< activations [pool rows][hidden]
  std::size_t pool_scales = 0;  ///< per slot [hidden / scale channels][block rows]
  std::size_t row_meta =
      0;                ///< u64 {src rank, token * contributions + slot} [pool rows + act rows]
  std::size_t act = 0;  ///< [act rows][intermediate]
  std::size_t act_scales = 0;  ///< per slot [intermediate / scale channels][block rows]
  std::size_t bytes = 0;
};

/// The one walk over the local region.
template <class Visitor>
constexpr LocalLayout walk_local(const Problem& p, Visitor&& visit) {
  Carver carver(visit);
  const RingRows rows = ring_rows(p);
  const std::size_t pool_slots = rows.pool / kMinBlockRows;
  const std::size_t act_slots = rows.act / kMinBlockRows;
  const std::size_t pool_rows = rows.pool;
  const std::size_t act_rows = rows.act;
  LocalLayout l;
  l.header =
      carver.take("local header", "start, fault claim, generation, bad id", sizeof(LocalHeader));
  l.words = carver.take("words", "[2] tickets and counters", 2 * sizeof(ParityWords));
  l.rows_ready = carver.take("rows_ready", "[2][pool slots] u32", 2 * pool_slots * 4);
  l.l1_done = carver.take("l1_done", "[2][act slots] u32", 2 * act_slots * 4);
  l.l2_done = carver.take("l2_done", "[2][act slots] u32", 2 * act_slots * 4);
  l.expected = carver.take("expected", "[2][waves][dst] u64",
                           2 * kMaxWaves * static_cast<std::size_t>(p.ranks) * 8);
  l.chunk_count = carver.take(
      "chunk_count", "[waves][chunks][ranks][local experts] u32",
      static_cast<std::size_t>(kMaxWaves) * kMaxRouteChunks * p.ranks * p.local_experts() * 4);
  l.pool = carver.take("pool", "[pool rows][hidden]",
                       pool_rows * activation_row_bytes(p.precision, p.hidden));
  l.pool_scales = carver.take("pool_scales", "[pool slots][hidden / scale channels][block rows]",
                              pool_rows * scale_row_bytes(p.precision, p.hidden));
  l.row_meta = carver.take("row_meta", "[pool rows + act rows] u64", (pool_rows + act_rows) * 8);
  l.act = carver.take("act", "[act rows][intermediate]",
                      act_rows * activation_row_bytes(p.precision, p.intermediate));
  l.act_scales = carver.take("act_scales", "[act slots][intermediate / scale channels][block rows]",
                             act_rows * scale_row_bytes(p.precision, p.intermediate));
  l.bytes = carver.end();
  return l;
}

constexpr LocalLayout local_layout(const Problem& p) { return walk_local(p, NoVisitor{}); }

}  // namespace megamoe
