#pragma once

#include "ptx/memory.cuh"
#include "roles/cta.cuh"

// Warm-up: all threads of all CTAs, once, before anything is waited for. Brings into L2 what a
// small call touches on its way to the first product, while memory is idle: a first touch later
// would queue behind the weights that stream from then on. Hints only; nothing is read.

namespace megamoe {

/// Lines of several ranges, dealt to the threads of a rank's grid in turn.
class LinePrefetch {
 public:
  MEGAMOE_DEVICE explicit LinePrefetch(const CtaState& state)
      : next_(static_cast<std::int64_t>(state.entry.cta) * blockDim.x + threadIdx.x),
        step_(static_cast<std::int64_t>(state.entry.grid) * blockDim.x) {}

  MEGAMOE_DEVICE void range(const void* begin, std::int64_t bytes) {
    const std::int64_t lines = (bytes + kLine - 1) / kLine;
    for (; next_ < lines; next_ += step_) {
      ptx::prefetch_l2(static_cast<const std::byte*>(begin) + next_ * kLine);
    }
    next_ -= lines;
  }

 private:
  static constexpr std::int64_t kLine = 128;
  std::int64_t next_, step_;
};

MEGAMOE_DEVICE void warm_up(const CtaState& state) {
  using protocol::u32;
  constexpr std::int64_t kMostBytes = 2 << 20;
  const protocol::Geometry& g = state.rank.geometry;
  const protocol::Memory& m = state.rank.memory;
  const std::int64_t tokens = state.rank.num_tokens, hidden = g.hidden_granules * kGranule;
  if (tokens * hidden > kMostBytes) return;
  const u32 parity = protocol::parity_of(state.entry.epoch);
  LinePrefetch lines(state);
  lines.range(m.rows_ready(parity), m.pool_words() * std::int64_t{4});
  lines.range(m.l1_done(parity), m.act_words() * std::int64_t{4});
  lines.range(m.l2_done(parity), m.act_words() * std::int64_t{4});
  // This rank's rows, which its peers will pull, and its routing.
  const std::byte* own = m.peer(g.rank);
  lines.range(own + m.symmetric().x, tokens * hidden);
  lines.range(own + m.symmetric().x_scales, tokens * g.hidden_granules * 4);
  lines.range(m.topk_weights(g.rank), tokens * g.top_k * 4);
  // Lists as long as this rank's own would be.
  for (u32 src = 0; src < g.ranks; ++src) {
    lines.range(m.list(g, g.rank, parity, src), tokens * g.contributions * 8);
  }
  lines.range(m.row_metas(), std::int64_t{8} * g.meta_slots() * g.block_rows);
}

}  // namespace megamoe
