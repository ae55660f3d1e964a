#include "sim/routing.hpp"

#include "sim/random.hpp"

namespace megamoe::sim {

RoutingTable::RoutingTable(const Scenario& s, u32 group, u64 seed)
    : ranks_(s.ranks),
      experts_per_rank_(s.experts_per_rank),
      top_k_(s.top_k),
      shared_(s.shared_experts),
      capacity_(s.capacity),
      calls_(s.calls + 1) {
  Random random(seed ^ mix(group + 1));
  Routing kind = s.routing;
  if (kind == Routing::by_seed) kind = static_cast<Routing>(1 + random.below(7));
  const bool full = random.percent(40) || s.full_tokens;
  tokens_.resize(static_cast<std::size_t>(calls_ + 1) * ranks_);
  ids_.resize(tokens_.size() * capacity_ * top_k_, -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto call = static_cast<u32>(i / ranks_);
    const auto rank = static_cast<u32>(i % ranks_);
    tokens_[i] = full ? capacity_ : random.below(capacity_ + 1);
    if (kind == Routing::none) tokens_[i] = 0;
    for (u32 token = 0; token < capacity_; ++token) {
      for (u32 slot = 0; slot < top_k_; ++slot) {
        ids_[(i * capacity_ + token) * top_k_ + slot] =
            choose(kind, call, rank, token * top_k_ + slot, random.bits());
      }
    }
  }
}

std::int64_t RoutingTable::choose(Routing kind, u32 call, u32 rank, u32 slot, u64 bits) const {
  const auto on = [&](u32 dst) {
    return static_cast<std::int64_t>(dst % ranks_ * experts_per_rank_ + bits % experts_per_rank_);
  };
  switch (kind) {
    case Routing::all_to_0:
      return on(0);
    case Routing::to_next:
      return on(rank + 1);
    case Routing::to_self:
      return on(rank);
    case Routing::alternating:
      if (call % 2 == 0) return call % 4 == 0 ? -1 : on(rank);
      return rank == 0 ? on(1 + slot) : -1;
    case Routing::spread:
      return on(rank + slot);
    case Routing::random: {
      const u32 experts = ranks_ * experts_per_rank_;
      if ((bits >> 32U) % 8 == 0) return -1;
      if ((bits >> 40U) % 32 == 0) return experts + 3;
      return static_cast<std::int64_t>((bits >> 8U) % experts);
    }
    default:
      return -1;
  }
}

u32 RoutingTable::rows(u32 call, u32 src, u32 dst) const {
  u32 rows = src == dst ? num_tokens(call, src) * shared_ : 0;
  for (u32 token = 0; token < num_tokens(call, src); ++token) {
    for (u32 slot = 0; slot < top_k_; ++slot) {
      const std::int64_t expert = id(call, src, token, slot);
      const bool valid =
          expert >= 0 && expert < static_cast<std::int64_t>(ranks_) * experts_per_rank_;
      rows += valid && static_cast<u32>(expert) / experts_per_rank_ == dst ? 1 : 0;
    }
  }
  return rows;
}

}  // namespace megamoe::sim
