#include "protocol/leave.hpp"
#include "protocol/route.hpp"
#include "protocol/tickets.hpp"
#include "sim/cta_roles.hpp"

namespace megamoe::sim {
namespace {

using protocol::Destination;

/// The router of a CTA: its threads step together, as one agent. Steps in the order of
/// src/roles/route.cuh.
class CtaRouter {
 public:
  CtaRouter(SimCall& c, Work& work)
      : c_(c),
        work_(work),
        wave_(protocol::route_wave(c.g, c.num_tokens, 0, kMaxRouteChunks)),
        cells_(static_cast<std::size_t>(c.g.ranks) * c.g.local_experts) {}

  bool run() {
    u32* const tickets = &c_.m.words(c_.parity())->route_ticket[0];
    u32 ticket = protocol::claim(c_, tickets);
    if (!protocol::may_start(c_)) return false;
    for (; ticket < wave_.num_tickets(); ticket = protocol::claim(c_, tickets)) {
      chunk_ = ticket % wave_.chunks;
      count();
      if (ticket < wave_.chunks) {
        const Route then = count_ticket();
        if (then != Route::goes_on) return then == Route::is_over;
      } else if (!write_ticket()) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Cell {
    u32 mine = 0;    ///< rows of this chunk
    u32 all = 0;     ///< of all chunks
    u32 before = 0;  ///< of earlier chunks
    u32 next = 0;    ///< position in the destination's list
  };
  [[nodiscard]] std::size_t index(Destination d) const {
    return static_cast<std::size_t>(d.rank) * c_.g.local_experts + d.local_expert;
  }
  [[nodiscard]] Destination cell_at(std::size_t i) const {
    return {static_cast<u32>(i / c_.g.local_experts), static_cast<u32>(i % c_.g.local_experts)};
  }

  template <class Fn>
  void for_each_contribution(Fn fn) {
    const u32 first = protocol::lesser(chunk_ * wave_.chunk_tokens, wave_.num_tokens);
    const u32 end = protocol::lesser(first + wave_.chunk_tokens, wave_.num_tokens);
    for (u32 token = first; token < end; ++token) {
      for (u32 slot = 0; slot < c_.g.contributions; ++slot) {
        const u32 contribution = protocol::contribution_index(token, slot, c_.g.contributions);
        if (slot >= c_.g.top_k) {
          fn(contribution, Destination{c_.g.rank, c_.g.experts_per_rank + slot - c_.g.top_k});
          continue;
        }
        const std::int64_t id = work_.expert_id(token, slot);
        if (protocol::is_expert(c_.g, id)) {
          fn(contribution, protocol::destination(c_.g, id));
        } else if (id != -1) {
          protocol::record_bad_id(c_, token, slot, id);
        }
      }
    }
  }

  void count() {
    std::fill(cells_.begin(), cells_.end(), Cell{});
    for_each_contribution([&](u32, Destination to) { ++cells_[index(to)].mine; });
    for (Cell& cell : cells_) cell.all = cell.mine;
  }

  enum class Route : unsigned char { goes_on, is_over, stops };
  Route count_ticket() {
    if (wave_.chunks > 1) {
      for (std::size_t i = 0; i < cells_.size(); ++i)
        protocol::store_chunk_count(c_, 0, chunk_, cell_at(i), cells_[i].mine);
    }
    if (protocol::finish_counting(c_, 0, wave_.chunks)) {
      if (wave_.chunks > 1) load_all_chunks();
      scan(true);
      if (work_.call().stops_after_counts) return Route::stops;
    }
    if (wave_.chunks > 1) return Route::goes_on;
    write_entries();
    return Route::is_over;
  }

  bool write_ticket() {
    if (!protocol::wait_counted(c_, 0, wave_.chunks)) return false;
    load_all_chunks();
    scan(false);
    write_entries();
    return true;
  }

  void load_all_chunks() {
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      cells_[i].all = 0;
      for (u32 chunk = 0; chunk < wave_.chunks; ++chunk) {
        if (chunk == chunk_) cells_[i].before = cells_[i].all;
        cells_[i].all += protocol::load_chunk_count(c_, 0, chunk, cell_at(i));
      }
    }
  }

  /// Counts go out first, then what is expected back, which validates itself.
  void scan(bool publish) {
    for (u32 dst = 0; dst < c_.g.ranks; ++dst) {
      u32 end = 0;
      for (u32 e = 0; e < c_.g.local_experts; ++e) {
        Cell& cell = cells_[index({dst, e})];
        cell.next = end + cell.before;
        end += cell.all;
        if (publish) protocol::publish_count(c_, 0, {dst, e}, end);
      }
      for (u32 wave = 0; publish && wave < kMaxWaves; ++wave)
        protocol::store_expected(c_, wave, dst, wave == 0 ? end : 0);
    }
  }

  void write_entries() {
    for_each_contribution([&](u32 contribution, Destination to) {
      protocol::publish_entry(c_, 0, to.rank, cells_[index(to)].next++, contribution);
    });
  }

  SimCall& c_;
  Work& work_;
  protocol::RouteWave wave_;
  std::vector<Cell> cells_;  // [ranks][local experts]
  u32 chunk_ = 0;
};

}  // namespace

bool CtaRoles::route(SimCall& c, Work& work) { return CtaRouter(c, work).run(); }

}  // namespace megamoe::sim
