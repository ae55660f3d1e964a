#pragma once

#include <cstddef>

#include "layout/local_layout.hpp"
#include "layout/symmetric_layout.hpp"
#include "protocol/env.hpp"
#include "protocol/geometry.hpp"

namespace megamoe::protocol {

/// Addresses of every word and list of the protocol, as one rank sees them.
class Memory {
 public:
  Memory() = default;
  Memory(const Problem& problem, std::byte* const* peers, std::byte* local)
      : symmetric_(symmetric_layout(problem)), local_layout_(local_layout(problem)), local_(local) {
    for (int r = 0; r < problem.ranks; ++r) peers_[r] = peers[r];
  }

  [[nodiscard]] MEGAMOE_HD const SymmetricLayout& symmetric() const { return symmetric_; }
  [[nodiscard]] MEGAMOE_HD const LocalLayout& local_offsets() const { return local_layout_; }
  [[nodiscard]] MEGAMOE_HD std::byte* peer(u32 rank) const { return peers_[rank]; }

  // In the symmetric region of `owner`.
  [[nodiscard]] MEGAMOE_HD u64* abort_word(u32 owner) const { return &header(owner)->abort_word; }
  [[nodiscard]] MEGAMOE_HD u64* arrived(u32 owner, u32 wave, u32 dst) const {
    return &header(owner)->arrived[wave][dst];
  }
  /// Counts that `src` published to `owner`: inclusive ends per local expert.
  [[nodiscard]] MEGAMOE_HD u64* count(const Geometry& g, u32 owner, u32 parity, u32 wave,
                                      u32 src) const {
    const std::size_t row = (static_cast<std::size_t>(parity) * kMaxWaves + wave) * g.ranks + src;
    return at<u64>(peers_[owner], symmetric_.count) + row * g.local_experts;
  }
  [[nodiscard]] MEGAMOE_HD u64* list(const Geometry& g, u32 owner, u32 parity, u32 src) const {
    return at<u64>(peers_[owner], symmetric_.list) +
           (static_cast<std::size_t>(parity) * g.ranks + src) * g.list_entries;
  }
  [[nodiscard]] MEGAMOE_HD const std::int64_t* topk_idx(u32 owner) const {
    return at<std::int64_t>(peers_[owner], symmetric_.topk_idx);
  }
  [[nodiscard]] MEGAMOE_HD const float* topk_weights(u32 owner) const {
    return at<float>(peers_[owner], symmetric_.topk_weights);
  }

  // In this rank's local region.
  [[nodiscard]] MEGAMOE_HD LocalHeader* local_header() const {
    return at<LocalHeader>(local_, local_layout_.header);
  }
  [[nodiscard]] MEGAMOE_HD ParityWords* words(u32 parity) const {
    return at<ParityWords>(local_, local_layout_.words) + parity;
  }
  [[nodiscard]] MEGAMOE_HD u32* rows_ready(u32 parity) const {
    return slots(local_layout_.rows_ready, parity, pool_words());
  }
  [[nodiscard]] MEGAMOE_HD u32* l1_done(u32 parity) const {
    return slots(local_layout_.l1_done, parity, act_words());
  }
  [[nodiscard]] MEGAMOE_HD u32* l2_done(u32 parity) const {
    return slots(local_layout_.l2_done, parity, act_words());
  }
  [[nodiscard]] MEGAMOE_HD u64* expected(const Geometry& g, u32 parity, u32 wave) const {
    return at<u64>(local_, local_layout_.expected) +
           (static_cast<std::size_t>(parity) * kMaxWaves + wave) * g.ranks;
  }
  /// Counts of one route chunk, [ranks][local experts].
  [[nodiscard]] MEGAMOE_HD u32* chunk_count(const Geometry& g, u32 wave, u32 chunk) const {
    const std::size_t row = static_cast<std::size_t>(wave) * kMaxRouteChunks + chunk;
    return at<u32>(local_, local_layout_.chunk_count) + row * g.ranks * g.local_experts;
  }
  [[nodiscard]] MEGAMOE_HD u64* row_metas() const {
    return at<u64>(local_, local_layout_.row_meta);
  }
  [[nodiscard]] MEGAMOE_HD std::byte* pool() const { return local_ + local_layout_.pool; }
  [[nodiscard]] MEGAMOE_HD std::byte* pool_scales() const {
    return local_ + local_layout_.pool_scales;
  }
  [[nodiscard]] MEGAMOE_HD std::byte* act() const { return local_ + local_layout_.act; }
  [[nodiscard]] MEGAMOE_HD std::byte* act_scales() const {
    return local_ + local_layout_.act_scales;
  }

  /// Words of one parity's rows_ready, and of one parity's l1_done or l2_done.
  [[nodiscard]] MEGAMOE_HD u32 pool_words() const {
    return static_cast<u32>((local_layout_.l1_done - local_layout_.rows_ready) / (2 * sizeof(u32)));
  }
  [[nodiscard]] MEGAMOE_HD u32 act_words() const {
    return static_cast<u32>((local_layout_.l2_done - local_layout_.l1_done) / (2 * sizeof(u32)));
  }

 private:
  template <class T>
  MEGAMOE_HD static T* at(std::byte* base, std::size_t offset) {
    return reinterpret_cast<T*>(base + offset);
  }
  [[nodiscard]] MEGAMOE_HD SymmetricHeader* header(u32 owner) const {
    return at<SymmetricHeader>(peers_[owner], symmetric_.header);
  }
  [[nodiscard]] MEGAMOE_HD u32* slots(std::size_t offset, u32 parity, u32 words_per_parity) const {
    return at<u32>(local_, offset) + static_cast<std::size_t>(parity) * words_per_parity;
  }

  std::byte* peers_[kMaxRanks] = {};
  SymmetricLayout symmetric_ = {};
  LocalLayout local_layout_ = {};
  std::byte* local_ = nullptr;
};

}  // namespace megamoe::protocol
