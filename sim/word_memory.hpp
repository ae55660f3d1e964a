#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "protocol/env.hpp"
#include "sim/agent.hpp"
#include "sim/word_name.hpp"

namespace megamoe::sim {

using protocol::Order;
using protocol::Scope;

/// What a release published, and how far.
struct Release {
  Scope scope;
  u32 slot;
  std::shared_ptr<const View> view;
};

/// One value that a word has had. A load may return any store that is not older than one that the
/// loading agent knows of: one that it, or a step in its past, has read or written.
struct Store {
  struct Seen {
    u32 slot;
    u32 step;
  };
  u64 value = 0;
  u32 slot = 0;  ///< of the writer
  Scope scope = Scope::sys;
  std::vector<Release> releases;
  std::vector<Seen> seen;
};

struct Word {
  WordName name;
  std::vector<Store> stores;  ///< in modification order; the first is the initial value
  u64 history = 0;            ///< hash of the order of its stores
};

/// An ordered access, as the Environment asks for it.
struct Access {
  const void* address = nullptr;
  u32 bytes = 8;
  Order order = Order::relaxed;
  Scope scope = Scope::sys;
};

/// What a load or a read-modify-write returned.
struct Observed {
  u64 value = 0;
  u32 word = 0;
  u32 store = 0;                  ///< index of the store that was read
  u32 newest = 0;                 ///< index of the newest store that was visible
  bool says_nothing_new = false;  ///< a load: the agent knew of the store and of all it releases
};

/// The words of all ranks under a weak memory model; see docs/adr/ for what is modelled.
class WordMemory {
 public:
  explicit WordMemory(std::vector<Place> places) : places_(std::move(places)) {}

  /// Names the words of a region. Words outside all regions are shared-memory barriers or flags and
  /// must be named one by one.
  void add_region(const std::byte* base, std::size_t bytes,
                  std::function<WordName(std::size_t)> name);
  void add_word(const void* address, const WordName& name);
  /// The word at `address`; its value before any store is 0.
  u32 find(const void* address);
  /// True if nobody has accessed the word of a region yet.
  [[nodiscard]] bool is_untouched(const void* address) const {
    const Region* region = region_of(address);
    return region != nullptr && region->index[region->place(address)] == 0;
  }
  [[nodiscard]] const Word& word(u32 index) const { return words_[index]; }
  [[nodiscard]] std::size_t num_words() const { return words_.size(); }

  /// How many stores a load could return, at least 1.
  u32 choices(const Agent& agent, u32 word, Scope scope) const;
  /// True if another load could only return store number `store` again. What the agent has learned
  /// since it read that store counts too.
  bool is_newest(const Agent& agent, u32 word, u32 store, Scope scope) const;
  /// Returns the store that is `age` before the newest visible one.
  Observed load(Agent& agent, u32 word, const Access& access, u32 age);
  void store(Agent& agent, u32 word, const Access& access, u64 value);
  Observed fetch_add(Agent& agent, u32 word, const Access& access, u64 value);
  Observed compare_exchange(Agent& agent, u32 word, const Access& access, u64 expected,
                            u64 desired);
  /// An arrival by the bulk copies that `agent` has started: happens once they are complete.
  void async_arrive(Agent& agent, u32 word, u64 value);
  /// The newest value, for checks that stand outside the run.
  [[nodiscard]] u64 latest(u32 word) const { return words_[word].stores.back().value; }
  /// By the host while nothing runs: forgets all stores.
  void reset(u32 word, u64 value);

  [[nodiscard]] u64 state_hash() const { return hash_; }

 private:
  struct Region {
    const std::byte* base;
    std::size_t bytes;
    std::function<WordName(std::size_t)> name;
    std::vector<u32> index;  // of every 4 bytes: word + 1, or 0

    [[nodiscard]] bool holds(const void* address) const {
      return static_cast<const std::byte*>(address) - base < static_cast<std::ptrdiff_t>(bytes) &&
             address >= base;
    }
    [[nodiscard]] std::size_t offset(const void* address) const {
      return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base);
    }
    [[nodiscard]] std::size_t place(const void* address) const { return offset(address) / 4; }
  };
  /// nullptr for a word outside all regions.
  [[nodiscard]] const Region* region_of(const void* address) const {
    if (last_region_ < regions_.size() && regions_[last_region_].holds(address))
      return &regions_[last_region_];
    for (last_region_ = 0; last_region_ < regions_.size(); ++last_region_) {
      if (regions_[last_region_].holds(address)) return &regions_[last_region_];
    }
    return nullptr;
  }
  [[nodiscard]] bool reaches(u32 from, Scope scope, u32 to) const;
  [[nodiscard]] bool visible(const Agent& agent, const Store& store, Scope scope) const;
  [[nodiscard]] u32 oldest(const Agent& agent, const Word& word) const;
  void acquire(Agent& agent, const Store& store, Scope scope);
  [[nodiscard]] bool is_known(const Agent& agent, const Store& store, const Access& access) const;
  Store& append(Word& word, Agent& agent, u32 slot, u64 value, Scope scope);
  void publish(Store& store, const Agent& agent, const Access& access);
  Observed observe(Agent& agent, u32 word, const Access& access, u32 index);

  std::vector<Place> places_;
  std::vector<Region> regions_;
  mutable std::size_t last_region_ = 0;  // accesses come in runs
  std::unordered_map<const void*, u32> others_;
  std::vector<Word> words_;
  u64 hash_ = 0;
};

}  // namespace megamoe::sim
