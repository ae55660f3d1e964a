#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/mutation.hpp"
#include "sim/payload.hpp"
#include "sim/scheduler.hpp"
#include "sim/shared_words.hpp"
#include "sim/trace.hpp"
#include "sim/word_memory.hpp"

namespace megamoe::sim {

/// Everything that the agents of one run share: who steps next, words, payload, time, trace, and
/// the mutation between the protocol and the words.
class Machine {
 public:
  Machine(Policy& policy, u64 max_steps, std::vector<Place> places, Payload payload,
          Mutation mutation, std::FILE* live_trace);

  Scheduler& scheduler() { return scheduler_; }
  WordMemory& words() { return words_; }
  Payload& payload() { return payload_; }
  [[nodiscard]] const Mutation& mutation() const { return mutation_; }

  // The Environment's operations, by the agent that runs.
  u64 load(Agent& agent, const Access& access);
  void store(Agent& agent, const Access& access, u64 value);
  u64 fetch_add(Agent& agent, const Access& access, u64 value);
  bool compare_exchange(Agent& agent, const Access& access, u64 expected, u64 desired);
  /// After a poll in vain of `loads` loads.
  void pause(Agent& agent, u32 loads = 2);
  void fence(Agent& agent, bool to_async);
  [[nodiscard]] u64 now() const { return time_; }

  // Payload.
  /// A scheduling point with a name for the trace.
  void step(Agent& agent, const char* what, u64 value);
  u64 read(Agent& agent, const CellName& cell, Proxy proxy);
  void write(Agent& agent, const CellName& cell, Proxy proxy, u64 value);
  void complete_async(Agent& agent) { Payload::complete_async(agent); }
  /// Adds 1 to a barrier in shared memory once the bulk copies that the agent started are complete.
  void async_arrive(Agent& agent, const void* barrier);

  /// The end of an agent's work: performs what it has deferred, completes its copies.
  void leave(Agent& agent);

  /// With a deadline, time passes when nobody can go on; without, that is a deadlock.
  void set_deadline(u64 ns) { deadline_ns_ = ns; }
  /// Per clock slot: what the mutation needs to know of the agent's call.
  void set_call(u32 slot, const CallFacts& facts) { calls_[slot] = facts; }

  /// From now on agents switch only before words that several of them use.
  void set_shared_words(SharedWords* shared) { shared_ = shared; }
  [[nodiscard]] std::string trace_tail(std::size_t lines) const;
  /// The part of the state that later steps depend on, for exploration.
  [[nodiscard]] u64 state_hash() const;

 private:
  u64 perform(Agent& agent, Op& op, u32 word);
  u64 run_op(Agent& agent, Op& op);
  void flush(Agent& agent);
  void after_store(u32 word);
  void note(Agent& agent, const char* what, u32 word, u64 value, u32 age);
  [[nodiscard]] bool changes_nothing(u32 word, const Op& op) const;
  bool pass_time();
  [[nodiscard]] std::string describe_deadlock() const;
  [[nodiscard]] std::string word_text(u32 word) const;

  Scheduler scheduler_;
  Policy& policy_;
  WordMemory words_;
  Payload payload_;
  Mutation mutation_;
  Trace trace_;
  u64 time_ = 1'000'000'000;
  u64 deadline_ns_ = 0;
  u64 stores_ = 0;
  u64 stores_at_idle_ = 0;
  u32 idles_ = 0;
  SharedWords* shared_ = nullptr;
  std::vector<CallFacts> calls_;
  std::vector<WordKind> last_word_;
  std::map<const Agent*, std::vector<Op>> deferred_;
};

}  // namespace megamoe::sim
