#include "host/cuda/rank_maps.hpp"

#include "config/rings.hpp"
#include "host/tensor_maps.hpp"

namespace megamoe::cuda {
namespace {

constexpr int kWeightBoxRows = 256;

}  // namespace

RankMapCache::Key RankMapCache::key_of(const ExpertTensors& routed, const ExpertTensors* shared,
                                       int block_rows) {
  // Without shared experts their maps repeat the routed ones.
  const ExpertTensors& other = shared == nullptr ? routed : *shared;
  return {routed.w1,       routed.w1_scales, routed.w2,       routed.w2_scales, other.w1,
          other.w1_scales, other.w2,         other.w2_scales, block_rows};
}

bool RankMapCache::holds(const ExpertTensors& routed, const ExpertTensors* shared,
                         int block_rows) const {
  return maps_.contains(key_of(routed, shared, block_rows));
}

const RankMaps& RankMapCache::get(const Problem& p, const protocol::Memory& memory,
                                  const ExpertTensors& routed, const ExpertTensors* shared,
                                  int block_rows) {
  const Key key = key_of(routed, shared, block_rows);
  if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
  if (maps_.size() >= kMost) maps_.clear();
  const auto w1_map = [&](const ExpertTensors& w) {
    return expert_weight_map(w.w1, w.num_experts, 2 * p.intermediate, p.hidden, kWeightBoxRows,
                             L2Promotion::none);
  };
  const auto w2_map = [&](const ExpertTensors& w) {
    return expert_weight_map(w.w2, w.num_experts, p.hidden, p.intermediate, kWeightBoxRows,
                             L2Promotion::none);
  };
  const ExpertTensors& other = shared == nullptr ? routed : *shared;
  const RingRows rows = ring_rows(p);
  const RankMaps maps{
      .w1 = w1_map(routed),
      .w2 = w2_map(routed),
      .shared_w1 = w1_map(other),
      .shared_w2 = w2_map(other),
      .pool = row_map(memory.pool(), rows.pool, p.hidden, block_rows, L2Promotion::none),
      .act = row_map(memory.act(), rows.act, p.intermediate, block_rows, L2Promotion::none),
  };
  return maps_.emplace(key, maps).first->second;
}

}  // namespace megamoe::cuda
