#pragma once

#include <cstdint>

// What a traced launch records, as the host reads it.

namespace megamoe {

enum class TraceMark : std::uint32_t {
  none,
  entered,         ///< the CTA knows its rank and call
  routed,          ///< no route ticket left
  planned,         ///< counts of all ranks are in
  tile_claimed,    ///< scheduler; index: GEMM ticket
  inputs_ready,    ///< scheduler: what the tile reads is there
  tile_loaded,     ///< scheduler: all stages of the tile started
  chunk_claimed,   ///< courier; index: pull ticket
  slot_free,       ///< courier: entries and pool slot are there
  chunk_pulled,    ///< courier: rows and scales are in the pool
  tile_begun,      ///< math: first stage full; index: block
  tile_computed,   ///< math: last products done
  tile_stored,     ///< math: results stored
  tile_popped,     ///< publisher: all consumer warps have stored; index: block
  tile_published,  ///< publisher
  sum_claimed,     ///< any warp: first sum ticket
  arrived,         ///< any warp: all contributions are in
  summed,          ///< any warp: no sum ticket left
  left,            ///< the CTA's last act
};

struct TraceEvent {
  std::uint64_t ns;
  TraceMark what;
  std::uint32_t index;
};

/// Most lists of a CTA: its warps, and one for the CTA as a whole.
inline constexpr int kMaxTraceLists = 21;

/// Lists of events, [CTAs][lists][capacity], zeroed by the host; null: tracing is off. A CTA has a
/// list per warp, then one of its own.
struct TraceBuffer {
  TraceEvent* events;
  std::uint32_t lists;
  std::uint32_t capacity;
};

}  // namespace megamoe
