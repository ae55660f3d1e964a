#pragma once

#include <vector>

#include "protocol/agents/gemm_agent.hpp"
#include "protocol/memory.hpp"
#include "sim/routing.hpp"
#include "sim/sim_env.hpp"

namespace megamoe::sim {

/// What the data movement of one rank's call needs besides the protocol.
struct CallData {
  const protocol::Geometry* g = nullptr;
  const RoutingTable* routing = nullptr;
  u32 group = 0;
  u32 call = 0;
  Proxy pulls = Proxy::async;       ///< how rows are copied to the pool
  Proxy scales = Proxy::async;      ///< how their scales are read
  Proxy rings = Proxy::async;       ///< how both rings are read
  bool stops_after_counts = false;  ///< a rank that dies in mid-call
  Proxy sums = Proxy::async;        ///< how combine slots are read
};

/// The value of a payload cell: which call's token of which rank it belongs to, and which expert
/// has worked on it.
constexpr u64 data_tag(u32 call, u32 src, u32 token, u32 expert_plus_1) {
  return u64{call} << 48U | u64{src} << 40U | u64{token} << 20U | expert_plus_1;
}

/// Moves tags where the other worlds move rows. One object per agent; every access is checked.
class Work {
 public:
  Work(Machine& machine, Agent& agent, const CallData& data)
      : machine_(machine), agent_(agent), d_(data) {}

  [[nodiscard]] const CallData& call() const { return d_; }

  // For the courier.
  [[nodiscard]] std::int64_t expert_id(u32 token, u32 slot);
  void pull_row(u32 src, u32 index, u32 block, u32 row_in_block);
  void sum_tokens(u32 first, u32 count);
  void sum_piece(u32 token, u32 first_granule, u32 granules);

  // For the GEMM agent.
  void l1_accumulate(const protocol::BlockRef& block, u32 first_granule, u32 granules);
  void l1_store(const protocol::BlockRef& block, u32 first_granule, u32 granules);
  void l2_tile(const protocol::BlockRef& block, u32 first_granule, u32 granules);
  [[nodiscard]] u64 row_meta(const protocol::BlockRef& block, u32 row);

  // Their parts, for agents that are one role of a CTA. Loads leave copies under way.
  std::vector<u64> load_pool(const protocol::BlockRef& block);
  void store_act(const protocol::BlockRef& block, u32 first_granule, u32 granules,
                 const std::vector<u64>& rows);
  std::vector<u64> load_act(const protocol::BlockRef& block);
  void store_combine(const protocol::BlockRef& block, u32 first_granule, u32 granules,
                     const std::vector<u64>& rows);

 private:
  [[nodiscard]] CellName cell(CellKind kind, u32 owner, u32 i, u32 j = 0, u32 k = 0) const {
    return {kind, d_.group, owner, i, j, k};
  }
  [[nodiscard]] CellName meta(u32 block, u32 row) const;
  void expect(u64 seen, u64 expected, const char* what, const CellName& cell) const;
  /// The local expert + 1 that a slot of one of this rank's tokens is for.
  [[nodiscard]] u32 expert_of(u32 token, u32 slot);

  Machine& machine_;
  Agent& agent_;
  CallData d_;
  std::vector<u64> rows_;  // of the tile at hand
};

}  // namespace megamoe::sim
