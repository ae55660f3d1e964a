#pragma once

#include "protocol/env.hpp"
#include "sim/machine.hpp"

namespace megamoe::sim {

/// The protocol's Environment for one simulated agent.
class SimEnv {
 public:
  /// A waiting agent sleeps until a word that it polls has changed, so every poll counts.
  static constexpr u32 kPollsPerCheck = 1;

  SimEnv(Machine& machine, Agent& agent) : machine_(&machine), agent_(&agent) {}

  template <Order O, Scope S, class T>
  T load(const T* word) {
    return static_cast<T>(machine_->load(*agent_, {word, sizeof(T), O, S}));
  }
  template <Order O, Scope S, class T>
  void store(T* word, T value) {
    machine_->store(*agent_, {word, sizeof(T), O, S}, value);
  }
  template <Order O, Scope S, class T>
  T fetch_add(T* word, T value) {
    return static_cast<T>(machine_->fetch_add(*agent_, {word, sizeof(T), O, S}, value));
  }
  template <Order O, Scope S, class T>
  bool compare_exchange(T* word, T expected, T desired) {
    return machine_->compare_exchange(*agent_, {word, sizeof(T), O, S}, expected, desired);
  }
  [[nodiscard]] u64 now() const { return machine_->now(); }
  void pause() { machine_->pause(*agent_, agent_->loads_per_poll); }
  void fence_proxy_generic_to_async() { machine_->fence(*agent_, true); }
  void fence_proxy_async_to_generic() { machine_->fence(*agent_, false); }

  Machine& machine() { return *machine_; }
  Agent& agent() { return *agent_; }

 private:
  Machine* machine_;
  Agent* agent_;
};
static_assert(protocol::Environment<SimEnv>);

}  // namespace megamoe::sim
