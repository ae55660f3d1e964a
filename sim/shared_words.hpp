#pragma once

#include <unordered_map>

#include "sim/word_name.hpp"

namespace megamoe::sim {

/// Which words more than one agent uses, learned over the runs of an exploration.
class SharedWords {
 public:
  /// Notes an access by the owner of a clock slot; true if the word is shared.
  bool note(const WordName& word, u32 slot) {
    const u64 key = (u64{static_cast<u32>(word.kind)} << 56U) ^ (u64{word.group} << 48U) ^
                    (u64{word.owner} << 40U) ^ (u64{word.parity} << 36U) ^ word.index;
    const auto [at, is_new] = users_.try_emplace(key, slot);
    if (is_new || at->second == slot) return false;
    if (at->second != kMany) {
      at->second = kMany;
      changed_ = true;
    }
    return true;
  }
  /// True if a word was found to be shared since the last question.
  bool has_changed() {
    const bool changed = changed_;
    changed_ = false;
    return changed;
  }

 private:
  static constexpr u32 kMany = ~0U;
  std::unordered_map<u64, u32> users_;  // the only user's slot, or kMany
  bool changed_ = false;
};

}  // namespace megamoe::sim
