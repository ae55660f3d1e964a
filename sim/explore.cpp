#include "sim/explore.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "sim/random.hpp"
#include "sim/shared_words.hpp"

namespace megamoe::sim {
namespace {

/// States at which a choice was made, each with what was spent of the budget on the way. A state
/// that was reached with less spent has led wherever this one leads.
class KnownStates {
 public:
  struct Spent {
    u32 preemptions;
    u64 stale;  ///< bit per clock slot
  };
  /// False if the state is known with no more spent.
  bool insert(u64 hash, const Spent& spent) {
    std::vector<Spent>& known = spent_[hash];
    for (const Spent& k : known) {
      if (k.preemptions <= spent.preemptions && (k.stale & ~spent.stale) == 0) return false;
    }
    known.push_back(spent);
    return true;
  }
  [[nodiscard]] u64 size() const { return spent_.size(); }
  void clear() { spent_.clear(); }

 private:
  std::unordered_map<u64, std::vector<Spent>> spent_;
};

/// Repeats the choices of a prefix, then always takes the first possibility, and notes how many
/// there were.
class PrefixPolicy final : public Policy {
 public:
  struct Decision {
    u32 chosen = 0;
    u32 possible = 1;
  };

  PrefixPolicy(std::vector<Decision>& decisions, KnownStates& states, const Bounds& bounds)
      : decisions_(decisions), states_(states), bounds_(bounds) {}

  std::function<u64()> state_hash;

  Agent& next(Agent* current, std::span<Agent* const> ready) override {
    const bool may_go_on =
        current != nullptr && std::find(ready.begin(), ready.end(), current) != ready.end();
    if (may_go_on && (spent_.preemptions == bounds_.preemptions || ready.size() == 1))
      return *current;
    order_.assign(ready.begin(), ready.end());
    std::sort(order_.begin(), order_.end(), [&](const Agent* a, const Agent* b) {
      if ((a == current) != (b == current)) return a == current;
      return a->slot < b->slot;
    });
    const u32 chosen =
        decide(static_cast<u32>(order_.size()), current == nullptr ? ~0U : current->slot);
    if (may_go_on && chosen > 0) ++spent_.preemptions;
    return *order_[chosen];
  }

  u32 age(Agent& agent, u32 choices) override {
    const u64 bit = u64{1} << agent.slot % 64;
    if (bounds_.stale_per_agent == 0 || (spent_.stale & bit) != 0) return 0;
    const u32 chosen = decide(choices, agent.slot + 1'000'000);
    if (chosen > 0) spent_.stale |= bit;
    return chosen;
  }

  [[nodiscard]] bool is_over() const override { return cut_; }
  [[nodiscard]] bool cut() const { return cut_; }

 private:
  u32 decide(u32 possible, u32 who) {
    if (possible < 2 || cut_) return 0;
    if (at_ == decisions_.size()) {
      if (!states_.insert(mix(state_hash() ^ mix(who)), spent_)) {
        cut_ = true;
        return 0;
      }
      decisions_.push_back({0, possible});
    }
    return decisions_[at_++].chosen;
  }

  std::vector<Decision>& decisions_;
  KnownStates& states_;
  Bounds bounds_;
  std::size_t at_ = 0;
  KnownStates::Spent spent_ = {};
  bool cut_ = false;
  std::vector<Agent*> order_;  // scratch
};

/// Moves on to the next prefix in depth-first order; false when all have been followed.
bool advance(std::vector<PrefixPolicy::Decision>& decisions) {
  while (!decisions.empty() && decisions.back().chosen + 1 >= decisions.back().possible)
    decisions.pop_back();
  if (decisions.empty()) return false;
  ++decisions.back().chosen;
  return true;
}

}  // namespace

Exploration explore(const Scenario& scenario, u64 seed, Mutant mutant, const Bounds& bounds,
                    std::FILE* red_trace) {
  Exploration result;
  SharedWords shared;
  KnownStates states;
  std::vector<PrefixPolicy::Decision> decisions;
  while (result.runs + result.cut < bounds.max_runs) {
    PrefixPolicy policy(decisions, states, bounds);
    World world(scenario, seed, mutant, policy);
    policy.state_hash = [&world] { return world.machine().state_hash(); };
    world.machine().set_shared_words(&shared);
    Outcome outcome = world.run();
    ++(policy.cut() ? result.cut : result.runs);
    result.steps += outcome.steps;
    if (shared.has_changed()) {
      // Steps that were taken for private are not: start again.
      decisions.clear();
      states.clear();
      continue;
    }
    if (!outcome.failure.empty()) {
      result.red = std::move(outcome);
      if (red_trace == nullptr) break;
      PrefixPolicy again(decisions, states, bounds);
      World same(scenario, seed, mutant, again, red_trace);
      same.machine().set_shared_words(&shared);
      same.run();
      break;
    }
    if (!advance(decisions)) {
      result.complete = true;
      break;
    }
  }
  result.states = states.size();
  return result;
}

}  // namespace megamoe::sim
