#pragma once

#include <span>

#include "sim/agent.hpp"
#include "sim/random.hpp"

namespace megamoe::sim {

/// Makes the choices of a run: who steps next, and which store a load returns.
class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  /// A new agent has come.
  virtual void meet(Agent& /*agent*/) {}
  /// One of `ready`, which is not empty; `current` is nullptr when it cannot go on.
  virtual Agent& next(Agent* current, std::span<Agent* const> ready) = 0;
  /// 0: the newest store; k: the k-th before it, k < choices. `choices` is at least 2.
  virtual u32 age(Agent& agent, u32 choices) = 0;
  /// True if the run need not be followed any further.
  [[nodiscard]] virtual bool is_over() const { return false; }
};

/// Random choices from a seed. The seed also picks a style: uniform; bursts; a slow rank, role or
/// CTA; priorities with few changes.
class SeededPolicy final : public Policy {
 public:
  explicit SeededPolicy(u64 seed);
  void meet(Agent& agent) override;
  Agent& next(Agent* current, std::span<Agent* const> ready) override;
  u32 age(Agent& agent, u32 choices) override;

 private:
  enum class Style : unsigned char { uniform, bursts, slow, priorities };
  [[nodiscard]] bool is_slow(const Agent& agent) const;
  Agent& pick(std::span<Agent* const> ready);
  Agent& by_priority(Agent* current, std::span<Agent* const> ready);

  Random random_;
  Style style_;
  u32 stay_percent_ = 0;
  u32 stale_percent_ = 0;
  u32 slow_kind_ = 0;
  u32 slow_value_ = 0;
  u64 next_change_ = 0;
  u64 steps_ = 0;
};

}  // namespace megamoe::sim
