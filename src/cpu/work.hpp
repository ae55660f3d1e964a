#pragma once

#include <cstdint>
#include <vector>

#include "cpu/gemm.hpp"
#include "megamoe/weights.hpp"
#include "protocol/agents/gemm_agent.hpp"
#include "protocol/memory.hpp"
#include "protocol/snapshot.hpp"

namespace megamoe::cpu {

/// What the data movement and the arithmetic of one rank's call need besides the protocol.
struct CallData {
  const Problem* problem = nullptr;
  const protocol::Geometry* g = nullptr;
  const protocol::Memory* m = nullptr;
  const ExpertTensors* routed = nullptr;
  const ExpertTensors* shared = nullptr;
  std::uint16_t* y = nullptr;  ///< BF16 [num_tokens][hidden]
  DispatchSnapshot snapshot = {};
};

/// Moves and computes real data for the protocol's agents; one object per agent. Ordering is the
/// agents' affair: these are plain accesses, which ThreadSanitizer checks.
class Work {
 public:
  explicit Work(const CallData& data) : d_(data), gemm_(data.problem->precision) {}

  // For the courier.
  [[nodiscard]] std::int64_t expert_id(protocol::u32 token, protocol::u32 slot) const;
  void pull_row(protocol::u32 src, protocol::u32 index, protocol::u32 block,
                protocol::u32 row_in_block);
  void sum_tokens(protocol::u32 first, protocol::u32 count);

  // For the GEMM agent.
  void l1_accumulate(const protocol::BlockRef& block, protocol::u32 first_granule,
                     protocol::u32 granules);
  void l1_store(const protocol::BlockRef& block, protocol::u32 first_granule,
                protocol::u32 granules);
  void l2_tile(const protocol::BlockRef& block, protocol::u32 first_granule,
               protocol::u32 granules);
  [[nodiscard]] protocol::u64 row_meta(const protocol::BlockRef& block, protocol::u32 row) const;

  // For the snapshot agent.
  void snapshot_rows_of(protocol::u32 expert, protocol::u32 rows);
  void snapshot_block(protocol::u32 block, protocol::u32 first_row, protocol::u32 rows);

 private:
  struct Expert {
    const ExpertTensors* tensors;
    std::size_t index;  ///< within tensors
    ExpertBytes bytes;
  };
  [[nodiscard]] Expert expert(protocol::u32 local_expert) const;
  [[nodiscard]] std::size_t meta_row(protocol::u32 block, protocol::u32 row) const;
  void store_act_group(std::byte* slot_codes, std::byte* slot_scales, protocol::u32 row,
                       protocol::u32 granule, const float* h) const;

  CallData d_;
  TileGemm gemm_;
  std::vector<float> accumulator_;
};

}  // namespace megamoe::cpu
