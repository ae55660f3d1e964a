#pragma once

#include <algorithm>
#include <vector>

#include "protocol/agents/plan_storage.hpp"
#include "protocol/combine.hpp"
#include "protocol/leave.hpp"
#include "protocol/ring.hpp"
#include "protocol/route.hpp"
#include "protocol/tickets.hpp"

namespace megamoe::protocol {

/// What a call is for: everything, or only bringing the rows to their experts (DispatchSnapshot).
enum class Extent : unsigned char { layer, dispatch };

// clang-format off
/// The courier of one CTA as a single thread: route, pull, then sum. `Work` moves the data:
///   std::int64_t expert_id(u32 token, u32 slot)
///       this rank's topk_idx
///   void pull_row(u32 src, u32 index, u32 block, u32 row_in_block)
///       source's x row, scales -> pool; metadata
///   void sum_tokens(u32 first, u32 count)
///       combine slots -> y
// clang-format on
template <class Env, class Work>
class Courier {
 public:
  Courier(Call<Env>& call, Work& work, Extent extent = Extent::layer)
      : c_(call),
        work_(work),
        extent_(extent),
        counts_(static_cast<std::size_t>(call.g.ranks) * call.g.local_experts),
        positions_(counts_.size()),
        plan_(call.g) {}

  /// False: the call was aborted.
  [[nodiscard]] bool run() {
    if (claim(c_, &words().clear_ticket) == 0) clear_other_parity(c_);
    for (u32 wave = 0; wave < c_.g.num_waves; ++wave) {
      if (!route(wave)) return false;
    }
    // The sum of a wave follows the pulls of the next, so that it overlaps that wave's GEMMs.
    for (u32 wave = 0; wave < c_.g.num_waves; ++wave) {
      if (!plan_.read(c_, wave)) return false;
      if (!pull(wave)) return false;
      if (wave > 0 && !sum(wave - 1)) return false;
    }
    return sum(c_.g.num_waves - 1);
  }

 private:
  ParityWords& words() { return *c_.m.words(c_.parity()); }
  [[nodiscard]] std::size_t cell(Destination d) const {
    return static_cast<std::size_t>(d.rank) * c_.g.local_experts + d.local_expert;
  }
  [[nodiscard]] Destination cell_at(std::size_t i) const {
    return {static_cast<u32>(i / c_.g.local_experts), static_cast<u32>(i % c_.g.local_experts)};
  }
  RouteWave shape(u32 wave) { return route_wave(c_.g, c_.num_tokens, wave, kMaxRouteChunks); }

  bool route(u32 wave) {
    const RouteWave w = shape(wave);
    for (;;) {
      const u32 ticket = claim(c_, &words().route_ticket[wave]);
      if (ticket >= w.num_tickets()) return true;
      const u32 chunk = ticket % w.chunks;
      if (ticket < w.chunks) {
        count_chunk(w, chunk);
        if (w.chunks > 1) {
          for (std::size_t i = 0; i < counts_.size(); ++i)
            store_chunk_count(c_, wave, chunk, cell_at(i), counts_[i]);
        }
        if (finish_counting(c_, wave, w.chunks)) publish_counts(wave, w);
      } else if (!wait_counted(c_, wave, w.chunks)) {
        return false;
      }
      if (w.chunks == 1 || ticket >= w.chunks) write_entries(wave, w, chunk);
    }
  }

  /// Calls fn(token, slot, destination) for every contribution of a chunk's tokens, shared experts
  /// last.
  template <class Fn>
  void for_each_contribution(const RouteWave& w, u32 chunk, Fn fn) {
    const u32 first = std::min(chunk * w.chunk_tokens, w.num_tokens);
    const u32 last = std::min(first + w.chunk_tokens, w.num_tokens);
    for (u32 token = w.first_token + first; token < w.first_token + last; ++token) {
      for (u32 slot = 0; slot < c_.g.top_k; ++slot) {
        const std::int64_t id = work_.expert_id(token, slot);
        if (is_expert(c_.g, id)) fn(token, slot, destination(c_.g, id));
      }
      for (u32 slot = c_.g.top_k; slot < c_.g.contributions; ++slot) {
        fn(token, slot, Destination{c_.g.rank, c_.g.experts_per_rank + slot - c_.g.top_k});
      }
    }
  }

  void count_chunk(const RouteWave& w, u32 chunk) {
    std::fill(counts_.begin(), counts_.end(), 0U);
    for_each_contribution(w, chunk, [&](u32, u32, Destination to) { ++counts_[cell(to)]; });
    const u32 first = w.first_token + std::min(chunk * w.chunk_tokens, w.num_tokens);
    const u32 last = std::min(first + w.chunk_tokens, w.first_token + w.num_tokens);
    for (u32 token = first; token < last; ++token) {
      for (u32 slot = 0; slot < c_.g.top_k; ++slot) {
        const std::int64_t id = work_.expert_id(token, slot);
        if (id != -1 && !is_expert(c_.g, id)) record_bad_id(c_, token, slot, id);
      }
    }
  }

  /// Sums the counts of the chunks [0, last) into `into`.
  void add_chunks(u32 wave, u32 last, std::vector<u32>& into) {
    for (u32 chunk = 0; chunk < last; ++chunk) {
      for (std::size_t i = 0; i < into.size(); ++i)
        into[i] += load_chunk_count(c_, wave, chunk, cell_at(i));
    }
  }

  /// The wave's totals per destination expert: this chunk's own counts, or the sum over all chunks.
  void total_counts(u32 wave, const RouteWave& w) {
    if (w.chunks == 1) return;
    std::fill(counts_.begin(), counts_.end(), 0U);
    add_chunks(wave, w.chunks, counts_);
  }

  void publish_counts(u32 wave, const RouteWave& w) {
    total_counts(wave, w);
    for (u32 dst = 0; dst < c_.g.ranks; ++dst) {
      u32 end = 0;
      for (u32 e = 0; e < c_.g.local_experts; ++e) end += counts_[cell({dst, e})];
      store_expected(c_, wave, dst, extent_ == Extent::layer ? end : 0);
      // Waves that this call does not have carry their totals over to the next.
      for (u32 unused = c_.g.num_waves; wave == 0 && unused < kMaxWaves; ++unused)
        store_expected(c_, unused, dst, 0);
      end = 0;
      for (u32 e = 0; e < c_.g.local_experts; ++e)
        publish_count(c_, wave, {dst, e}, end += counts_[cell({dst, e})]);
    }
  }

  void write_entries(u32 wave, const RouteWave& w, u32 chunk) {
    total_counts(wave, w);
    for (u32 dst = 0; dst < c_.g.ranks; ++dst) {
      u32 begin = 0;
      for (u32 e = 0; e < c_.g.local_experts; ++e) {
        positions_[cell({dst, e})] = begin;
        begin += counts_[cell({dst, e})];
      }
    }
    add_chunks(wave, w.chunks == 1 ? 0 : chunk, positions_);
    for_each_contribution(w, chunk, [&](u32 token, u32 slot, Destination to) {
      publish_entry(c_, wave, to.rank, positions_[cell(to)]++,
                    contribution_index(token, slot, c_.g.contributions));
    });
  }

  bool pull(u32 wave) {
    const Plan& plan = plan_.plan();
    for (;;) {
      const u32 ticket = claim(c_, &words().pull_ticket[wave]);
      if (ticket >= plan.num_chunks()) return true;
      const PullChunk chunk = plan.chunk(ticket);
      // Nothing is held unpublished here: the chunk before was published when it was complete.
      if (!wait_pool_slot(c_, chunk.block)) return false;
      for (u32 i = 0; i < chunk.rows; ++i) {
        const auto [src, entry] = plan_.locate(c_.g, chunk.expert, chunk.row_in_expert + i);
        u32 index = 0;
        if (!read_entry(c_, wave, src, entry, index)) return false;
        work_.pull_row(src, index, chunk.block, chunk.row_in_block + i);
      }
      publish_rows(c_, chunk.block, chunk.ready_units);
    }
  }

  bool sum(u32 wave) {
    if (extent_ == Extent::dispatch) return true;
    const RouteWave w = shape(wave);
    bool all_arrived = false;
    for (;;) {
      const u32 first = claim(c_, &words().sum_ticket[wave]) * c_.g.sum_tokens;
      if (first >= w.num_tokens) return true;
      for (u32 dst = 0; !all_arrived && dst < c_.g.ranks; ++dst) {
        if (!wait_arrived(c_, wave, dst)) return false;
      }
      all_arrived = true;
      work_.sum_tokens(w.first_token + first, std::min(c_.g.sum_tokens, w.num_tokens - first));
    }
  }

  Call<Env>& c_;
  Work& work_;
  Extent extent_;
  std::vector<u32> counts_;     // [ranks][local experts]
  std::vector<u32> positions_;  // [ranks][local experts]: next free entry
  PlanStorage plan_;
};

}  // namespace megamoe::protocol
