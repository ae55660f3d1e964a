#include "sim/explore.hpp"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "sim/random.hpp"
#include "sim/shared_words.hpp"

namespace megamoe::sim {
namespace {

/// Repeats the choices of a prefix, then always takes the first possibility, and notes how many
/// there were.
class PrefixPolicy final : public Policy {
 public:
  struct Decision {
    u32 chosen = 0;
    u32 possible = 1;
  };

  PrefixPolicy(std::vector<Decision>& decisions, std::unordered_set<u64>& states,
               const Bounds& bounds)
      : decisions_(decisions), states_(states), bounds_(bounds) {}

  std::function<u64()> state_hash;

  Agent& next(Agent* current, std::span<Agent* const> ready) override {
    std::vector<Agent*> order(ready.begin(), ready.end());
    std::sort(order.begin(), order.end(), [&](const Agent* a, const Agent* b) {
      if ((a == current) != (b == current)) return a == current;
      return a->slot < b->slot;
    });
    const bool may_go_on = order.front() == current;
    const bool may_switch = !may_go_on || preemptions_ < bounds_.preemptions;
    const u32 chosen = decide(may_switch ? static_cast<u32>(order.size()) : 1,
                              current == nullptr ? ~0U : current->slot);
    if (may_go_on && chosen > 0) ++preemptions_;
    return *order[chosen];
  }

  u32 age(Agent& agent, u32 choices) override {
    if (stale_.size() <= agent.slot) stale_.resize(agent.slot + 1, 0);
    if (stale_[agent.slot] >= bounds_.stale_per_agent) return 0;
    const u32 chosen = decide(choices, agent.slot + 1'000'000);
    if (chosen > 0) ++stale_[agent.slot];
    return chosen;
  }

  [[nodiscard]] bool is_over() const override { return cut_; }
  [[nodiscard]] bool cut() const { return cut_; }

 private:
  u32 decide(u32 possible, u32 who) {
    if (possible < 2 || cut_) return 0;
    if (at_ == decisions_.size()) {
      u64 key = mix(state_hash() ^ mix(who)) + preemptions_ * 0x9E3779B97F4A7C15U;
      for (std::size_t slot = 0; slot < stale_.size(); ++slot) key ^= stale_[slot] * mix(slot + 77);
      if (!states_.insert(mix(key)).second) {
        cut_ = true;
        return 0;
      }
      decisions_.push_back({0, possible});
    }
    return decisions_[at_++].chosen;
  }

  std::vector<Decision>& decisions_;
  std::unordered_set<u64>& states_;
  Bounds bounds_;
  std::size_t at_ = 0;
  u32 preemptions_ = 0;
  std::vector<u32> stale_;
  bool cut_ = false;
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

Exploration explore(const Scenario& scenario, u64 seed, Mutant mutant, const Bounds& bounds) {
  Exploration result;
  SharedWords shared;
  std::unordered_set<u64> states;
  std::vector<PrefixPolicy::Decision> decisions;
  while (result.runs + result.cut < bounds.max_runs) {
    PrefixPolicy policy(decisions, states, bounds);
    World world(scenario, seed, mutant, policy);
    policy.state_hash = [&world] { return world.machine().state_hash(); };
    world.machine().set_shared_words(&shared);
    Outcome outcome = world.run();
    ++(policy.cut() ? result.cut : result.runs);
    result.steps += outcome.steps;
    if (!outcome.failure.empty()) {
      for (const PrefixPolicy::Decision& d : decisions) result.red_schedule.push_back(d.chosen);
      result.red = std::move(outcome);
      break;
    }
    if (shared.has_changed()) {
      // Steps that were taken for private are not: start again.
      decisions.clear();
      states.clear();
      continue;
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
