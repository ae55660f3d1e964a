#include "sim/policy.hpp"

namespace megamoe::sim {

SeededPolicy::SeededPolicy(u64 seed) : random_(seed), style_(static_cast<Style>(seed % 4)) {
  constexpr u32 kStay[] = {0, 50, 90, 97};
  constexpr u32 kStale[] = {0, 10, 40};
  stay_percent_ = style_ == Style::uniform ? 0 : kStay[random_.below(4)];
  stale_percent_ = kStale[random_.below(3)];
  slow_kind_ = random_.below(3);
  slow_value_ = random_.below(4);
  next_change_ = random_.below(400);
}

void SeededPolicy::meet(Agent& agent) { agent.priority = random_.bits() | 1U << 31U; }

bool SeededPolicy::is_slow(const Agent& agent) const {
  if (agent.who.is_late) return true;
  if (style_ != Style::slow) return false;
  if (slow_kind_ == 0) return agent.who.rank == slow_value_;
  if (slow_kind_ == 1) return agent.who.cta == slow_value_ && !agent.who.is_host;
  return static_cast<u32>(agent.who.role) == slow_value_ + 1;
}

Agent& SeededPolicy::pick(std::span<Agent* const> ready) {
  const auto n = static_cast<u32>(ready.size());
  Agent* chosen = ready[random_.below(n)];
  // Slow agents go on when nobody else can, and once in a long while.
  for (u32 tries = 0; tries < 2 * n && is_slow(*chosen); ++tries) {
    if (!chosen->who.is_late && random_.below(64 * n) == 0) break;
    chosen = ready[(random_.below(n) + tries) % n];
  }
  return *chosen;
}

Agent& SeededPolicy::by_priority(Agent* current, std::span<Agent* const> ready) {
  if (steps_ >= next_change_) {
    next_change_ = steps_ + 1 + random_.below(600);
    if (current != nullptr) current->priority = random_.bits() >> 33U;
  }
  Agent* best = nullptr;
  for (Agent* agent : ready) {
    const bool better =
        best == nullptr || (best->who.is_late && !agent->who.is_late) ||
        (best->who.is_late == agent->who.is_late && agent->priority > best->priority);
    if (better) best = agent;
  }
  return *best;
}

Agent& SeededPolicy::next(Agent* current, std::span<Agent* const> ready) {
  ++steps_;
  if (style_ == Style::priorities) return by_priority(current, ready);
  if (current != nullptr && stay_percent_ != 0 && random_.percent(stay_percent_)) return *current;
  return pick(ready);
}

u32 SeededPolicy::age(Agent& /*agent*/, u32 choices) {
  if (stale_percent_ == 0 || !random_.percent(stale_percent_)) return 0;
  return random_.below(choices);
}

}  // namespace megamoe::sim
