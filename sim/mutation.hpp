#pragma once

#include <functional>
#include <map>
#include <set>

#include "sim/mutant.hpp"
#include "sim/word_memory.hpp"

namespace megamoe::sim {

enum class OpKind : unsigned char { load, store, fetch_add, compare_exchange };

/// An operation on its way from the protocol to the memory.
struct Op {
  OpKind kind;
  Access access;
  u64 value = 0;
  u64 desired = 0;     ///< of a compare_exchange
  bool skip = false;   ///< is not performed; returns `value`
  bool defer = false;  ///< is performed before the agent's next one of its kind
};

/// What a change needs to know of the call that an agent is in.
struct CallFacts {
  u32 call = 0;  ///< of the group, from 1; runs on over a reset
  u32 epoch = 0;
  u32 grid = 1;
  u32 l2_tile_granules = 1;
};

/// Breaks the protocol between its steps and the memory: changes, drops, delays and forges
/// operations by the word they are for.
class Mutation {
 public:
  /// What the changes need to know of the scenario.
  struct Facts {
    u32 local_experts = 1;
    u32 hidden_granules = 1;
    /// Bytes between the two copies of a word, by kind; 0 where there is one.
    std::function<std::size_t(WordKind)> parity_bytes;
    /// Rows that src sends to dst in a call.
    std::function<u32(u32 call, u32 src, u32 dst)> rows;
  };
  Mutation(Mutant mutant, Facts facts) : mutant_(mutant), facts_(std::move(facts)) {}

  [[nodiscard]] bool is(Mutant mutant) const { return mutant_ == mutant; }

  /// Changes what `agent` is about to do.
  void change(const Agent& agent, const WordName& word, const CallFacts& call, Op& op);
  /// Changes what an operation has returned.
  [[nodiscard]] u64 forge(const Agent& agent, const WordName& word, const CallFacts& call,
                          const Op& op, u64 value);
  /// True if the agent must perform what it deferred before this operation.
  [[nodiscard]] bool flushes(const WordName& word, const Op& op) const;
  /// True if a proxy fence is left out. `last` is the word that the agent accessed last.
  [[nodiscard]] bool drops_fence(const Agent& agent, bool to_async, WordKind last) const;

 private:
  void weaken(const Agent& agent, const WordName& word, Op& op) const;
  void change_counts(const Agent& agent, const WordName& word, const CallFacts& call, Op& op) const;
  void change_clearing(const WordName& word, const CallFacts& call, Op& op) const;
  void change_tickets(const Agent& agent, const WordName& word, Op& op);
  [[nodiscard]] u32 l2_tiles(const CallFacts& call) const;

  Mutant mutant_;
  Facts facts_;
  std::map<u32, u32> expected_;    // by clock slot: the value of `expected` that was loaded last
  std::set<const Agent*> pulled_;  // couriers that have claimed a pull
};

}  // namespace megamoe::sim
