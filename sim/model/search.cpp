#include "sim/model/search.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace megamoe::sim::model {
namespace {

/// A set of 64-bit hashes: two states with the same hash count as one.
class HashSet {
 public:
  HashSet() : table_(1U << 16U, 0) {}
  bool insert(u64 hash) {
    if (hash == 0) hash = 1;
    if (size_ * 2 > table_.size()) grow();
    if (!place(hash)) return false;
    ++size_;
    return true;
  }
  [[nodiscard]] u64 size() const { return size_; }

 private:
  bool place(u64 hash) {
    const std::size_t mask = table_.size() - 1;
    std::size_t i = hash & mask;
    while (table_[i] != 0) {
      if (table_[i] == hash) return false;
      i = (i + 1) & mask;
    }
    table_[i] = hash;
    return true;
  }
  void grow() {
    std::vector<u64> old(table_.size() * 2, 0);
    old.swap(table_);
    for (const u64 hash : old) {
      if (hash != 0) place(hash);
    }
  }

  std::vector<u64> table_;
  u64 size_ = 0;
};

u64 hash_of(const State& s, int ranks) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&s);
  const std::size_t size = sizeof(Rank) * static_cast<std::size_t>(ranks);
  u64 hash = 0;
  for (std::size_t i = 0; i < size; i += 8) {
    u64 word = 0;
    std::memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32U;
  }
  return mix(hash);
}

/// CTAs of a rank are alike: states that differ by their exchange count once.
void sort_ctas(State& s, const Parameters& p) {
  if (p.variant.route_by_block_index || p.ctas != 2) return;
  for (int r = 0; r < p.ranks; ++r) {
    auto& cta = s.rank[r].cta;
    if (std::memcmp(&cta[0], &cta[1], sizeof(Cta)) > 0) std::swap(cta[0], cta[1]);
  }
}

}  // namespace

Found search(const Parameters& p, Pattern pattern, u64 seed, u64 max_states) {
  const Routing routing(p, pattern, seed);
  const Steps steps(p, routing);
  Found found;
  HashSet known;
  std::vector<State> open = {steps.initial()};
  known.insert(hash_of(open.back(), p.ranks));
  while (!open.empty() && found.failure.empty()) {
    const State state = open.back();
    open.pop_back();
    bool any = false;
    for (int r = 0; r < p.ranks && found.failure.empty(); ++r) {
      for (int step = 0; step < steps.per_rank(); ++step) {
        State next = state;
        if (!steps.apply(next, r, step, found.failure)) continue;
        any = true;
        if (!found.failure.empty()) break;
        sort_ctas(next, p);
        if (known.insert(hash_of(next, p.ranks))) open.push_back(next);
      }
    }
    if (!any && !steps.finished(state)) found.failure = "deadlock";
    if (known.size() > max_states) {
      found.complete = false;
      break;
    }
  }
  found.states = known.size();
  return found;
}

}  // namespace megamoe::sim::model
