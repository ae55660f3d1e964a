#include "sim/scheduler.hpp"

#include <algorithm>

namespace megamoe::sim {

std::string to_string(const Identity& who) {
  static constexpr const char* kRoles[] = {"cta",    "courier", "scheduler",
                                           "loader", "math",    "publisher"};
  std::string text = who.group == 0 ? "" : "layer " + std::to_string(who.group) + " ";
  text += "rank " + std::to_string(who.rank);
  if (who.is_host) return text + " host";
  return text + " call " + std::to_string(who.call) + " cta " + std::to_string(who.cta) + " " +
         kRoles[static_cast<std::size_t>(who.role)];
}

Scheduler::~Scheduler() = default;

Agent& Scheduler::make_agent(std::size_t slots) {
  agents_.push_back(std::make_unique<Agent>());
  agents_.back()->view = View(slots);
  agents_.back()->async_view = View(slots);
  return *agents_.back();
}

void Scheduler::set_ready(Agent& agent) { ready_.push_back(&agent); }
void Scheduler::set_not_ready(Agent& agent) {
  const auto at = std::find(ready_.begin(), ready_.end(), &agent);
  if (at == ready_.end()) return;
  *at = ready_.back();
  ready_.pop_back();
}

void Scheduler::add(Agent& agent) {
  policy_.meet(agent);
  if (agent.device == nullptr) {
    agent.state = AgentState::ready;
    set_ready(agent);
    return;
  }
  agent.state = AgentState::pending;
  pending_.push_back(&agent);
  if (agent.device->free_slots > 0) set_ready(agent);
}

void Scheduler::take_slot(Agent& agent) {
  agent.state = AgentState::ready;
  pending_.erase(std::find(pending_.begin(), pending_.end(), &agent));
  if (--agent.device->free_slots > 0) return;
  for (Agent* other : pending_) {
    if (other->device == agent.device) set_not_ready(*other);
  }
}

void Scheduler::release_slot(Device& device) {
  if (device.free_slots++ > 0) return;
  for (Agent* other : pending_) {
    if (other->device == &device) set_ready(*other);
  }
}

void Scheduler::enter(void* agent_of_scheduler) {
  auto* scheduler = static_cast<Scheduler*>(agent_of_scheduler);
  Agent& agent = *scheduler->current_;
  scheduler->live(agent);
  scheduler->finish(agent);
}

void Scheduler::live(Agent& agent) {
  try {
    if (!stopping_) agent.body();
  } catch (const Failure& failure) {
    note_failure(failure.what());
  } catch (const Stopped&) {
    return;
  }
}

void Scheduler::finish(Agent& agent) {
  agent.state = AgentState::done;
  set_not_ready(agent);
  Agent* next = nullptr;
  if (!stopping_) {
    if (agent.device != nullptr) release_slot(*agent.device);
    for (const auto& other : agents_) {
      if (other->waits_for_exits) wake(*other);
    }
    next = choose(nullptr);
  }
  // When nobody is ready, run() looks whether somebody waits. The fibre's stack serves another one
  // when it continues: nothing of this run may be touched then.
  if (next != nullptr) make_current(*next);
  Fibre::switch_to(agent.fibre, next != nullptr ? next->fibre : main_);
}

void Scheduler::make_current(Agent& next) {
  if (next.state == AgentState::pending) take_slot(next);
  current_ = &next;
  if (!next.fibre.prepared()) next.fibre.prepare(&Scheduler::enter, this);
}

Agent* Scheduler::choose(Agent* current) {
  if (stopping_) return nullptr;
  while (ready_.empty()) {
    const bool all_done = std::all_of(agents_.begin(), agents_.end(), [](const auto& a) {
      return a->state == AgentState::done || a->state == AgentState::pending;
    });
    if (all_done || !on_idle || !on_idle()) return nullptr;
  }
  return &policy_.next(current, ready_);
}

void Scheduler::switch_to(Agent& next) {
  Agent& previous = *current_;
  if (&next == &previous) return;
  make_current(next);
  Fibre::switch_to(previous.fibre, next.fibre);
  if (stopping_) throw Stopped{};
}

void Scheduler::point() {
  if (stopping_) throw Stopped{};
  if (++steps_ > max_steps_) throw Failure("no end after " + std::to_string(max_steps_) + " steps");
  Agent& next = policy_.next(current_, ready_);
  if (policy_.is_over()) abandon();
  switch_to(next);
}

void Scheduler::wait() {
  if (stopping_) throw Stopped{};
  current_->state = AgentState::waiting;
  set_not_ready(*current_);
  Agent* next = choose(nullptr);
  if (next == nullptr) throw Failure(describe_deadlock ? describe_deadlock() : "deadlock");
  switch_to(*next);
}

void Scheduler::wake(Agent& agent) {
  if (agent.state != AgentState::waiting) return;
  agent.state = AgentState::ready;
  set_ready(agent);
}

void Scheduler::join(const std::vector<Agent*>& agents) {
  Agent& self = *current_;
  const auto done = [](const Agent* a) { return a->state == AgentState::done; };
  self.waits_for_exits = true;
  while (!std::all_of(agents.begin(), agents.end(), done)) wait();
  self.waits_for_exits = false;
  for (const Agent* agent : agents) self.view.join(agent->view);
}

void Scheduler::note_failure(std::string what) {
  if (!failure_.empty()) return;
  failure_ = std::move(what);
  stopping_ = true;
}

void Scheduler::abandon() {
  stopping_ = true;
  throw Stopped{};
}

std::string Scheduler::run() {
  while (Agent* next = choose(nullptr)) {
    make_current(*next);
    Fibre::switch_to(main_, next->fibre);
  }
  const auto waits = [](const auto& a) { return a->state == AgentState::waiting; };
  if (!stopping_ && std::any_of(agents_.begin(), agents_.end(), waits)) {
    note_failure(describe_deadlock ? describe_deadlock() : "deadlock");
  }
  stopping_ = true;
  // Unwinds what is left, so that agents free what they hold.
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    Agent& agent = *agents_[i];
    if (agent.state == AgentState::done || !agent.fibre.prepared()) continue;
    current_ = &agent;
    Fibre::switch_to(main_, agent.fibre);
  }
  return failure_;
}

}  // namespace megamoe::sim
