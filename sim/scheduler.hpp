#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/agent.hpp"
#include "sim/policy.hpp"

namespace megamoe::sim {

/// A rule was broken, or nothing can go on. Ends the run.
class Failure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs agents as fibres of this thread, one step at a time, in the order that a Policy chooses.
class Scheduler {
 public:
  Scheduler(Policy& policy, u64 max_steps) : policy_(policy), max_steps_(max_steps) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// A new agent with views of `slots` clock slots; call add() once it is filled in.
  Agent& make_agent(std::size_t slots);
  /// Lets the agent run. With a device it first needs a free slot there, which it then holds to its
  /// end.
  void add(Agent& agent);

  /// Runs until all agents are done. Returns what went wrong, or an empty string.
  std::string run();
  /// A path of interest has been followed far enough: unwinds all agents without a failure.
  [[noreturn]] void abandon();

  [[nodiscard]] Agent& current() { return *current_; }
  /// The current agent is about to step: another one may go first.
  void point();
  /// The current agent cannot go on until wake().
  void wait();
  void wake(Agent& agent);
  /// Waits until all `agents` are done and takes over their views.
  void join(const std::vector<Agent*>& agents);

  [[nodiscard]] u64 steps() const { return steps_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Agent>>& agents() const { return agents_; }
  [[nodiscard]] const std::vector<Agent*>& ready() const { return ready_; }
  /// Called when nobody is ready but somebody waits; true if it has woken one.
  std::function<bool()> on_idle;
  /// Called after a run ended without a step that could go on: describes who waits for what.
  std::function<std::string()> describe_deadlock;

 private:
  struct Stopped {};

  static void enter(void* agent_of_scheduler);
  void live(Agent& agent);
  void finish(Agent& agent);
  void set_ready(Agent& agent);
  void set_not_ready(Agent& agent);
  void take_slot(Agent& agent);
  void release_slot(Device& device);
  void make_current(Agent& next);
  void switch_to(Agent& next);
  /// Some agent that is ready, or nullptr when nobody is.
  Agent* choose(Agent* current);
  void note_failure(std::string what);

  Policy& policy_;
  u64 max_steps_;
  u64 steps_ = 0;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<Agent*> ready_;
  std::vector<Agent*> pending_;
  Agent* current_ = nullptr;
  Fibre main_;
  bool stopping_ = false;
  std::string failure_;
};

}  // namespace megamoe::sim
