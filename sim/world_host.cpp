#include "protocol/leave.hpp"
#include "sim/random.hpp"
#include "sim/world.hpp"

namespace megamoe::sim {

using protocol::parity_of;
using protocol::Phase;
using protocol::tag_of;

bool World::is_troubled(u32 call) const {
  return call == 2 && (s_.trouble == Trouble::dead_rank || s_.trouble == Trouble::stuck_rank ||
                       s_.trouble == Trouble::caller_abort);
}

void World::host(Launch& l, Agent& self) {
  const bool absent = l.first_rank + l.ranks == s_.ranks && s_.trouble != Trouble::stuck_rank;
  for (u32 call = 1; call <= s_.calls; ++call) {
    // After a fault nobody stages: peers may still be reading the inputs.
    const bool given_up = was_given_up(l);
    if (!given_up && !(is_troubled(call) && absent)) run_call(l, self, call);
    if (is_troubled(call)) meet_and_reset(self);
  }
}

void World::run_call(Launch& l, Agent& self, u32 call) {
  const u64 started = machine_->now();
  if (l.staged_call != call) stage(l, self, call);
  launch(l, self, call);
  if (is(Mutant::inputs_staged_early) && call < s_.calls) stage(l, self, call + 1);
  if (is_troubled(call) && s_.trouble == Trouble::caller_abort && l.first_rank == 0) {
    SimEnv env(*machine_, self);
    protocol::raise_abort(env, groups_[l.group].memory[0], s_.ranks,
                          protocol::abort_value(groups_[l.group].generation, 0, Phase::caller, 0));
  }
  machine_->scheduler().join(l.ctas);
  self.view.fence_all();
  if (is_troubled(call) || was_given_up(l)) {
    const bool stuck = s_.trouble == Trouble::stuck_rank && l.first_rank + l.ranks == s_.ranks;
    if (!stuck) check_fault(l, started);
  } else {
    check_results(l, self, call);
  }
}

bool World::was_given_up(const Launch& l) {
  // A host that gives up in call 2 may catch others still in call 1.
  if (s_.trouble != Trouble::caller_abort) return false;
  const Group& g = groups_[l.group];
  WordMemory& words = machine_->words();
  const u64 word = words.latest(words.find(g.memory[l.first_rank].abort_word(l.first_rank)));
  return tag_of(word) == g.generation;
}

void World::stage(Launch& l, Agent& self, u32 call) {
  machine_->step(self, "stage inputs of call", call);
  l.staged_call = call;
  for (u32 rank = l.first_rank; rank < l.first_rank + l.ranks; ++rank) {
    for (u32 token = 0; token < groups_[l.group].routing->num_tokens(call, rank); ++token) {
      const u64 tag = data_tag(call, rank, token, 0);
      machine_->write(self, {CellKind::x, l.group, rank, token, 0, 0}, Proxy::generic, tag);
      machine_->write(self, {CellKind::x_scales, l.group, rank, token, 0, 0}, Proxy::generic, tag);
      machine_->write(self, {CellKind::topk, l.group, rank, token, 0, 0}, Proxy::generic, call);
    }
  }
}

void World::launch(Launch& l, Agent& self, u32 call) {
  machine_->step(self, "launch call", call);
  self.view.fence_all();
  const auto at_launch = std::make_shared<const View>(self.view);
  Random random(seed_ ^ mix(call * 64 + l.first_rank));
  const u32 prompt_block = random.below(l.grid == 0 ? 1 : l.grid);
  l.ctas.clear();
  for (u32 block = 0; block < l.grid; ++block) {
    const bool missing = s_.trouble == Trouble::missing_cta && call == s_.calls &&
                         l.first_rank == 0 && block != prompt_block;
    if (missing) continue;
    Agent& agent = machine_->scheduler().make_agent(num_slots_);
    const bool late = s_.late_ctas && block != prompt_block && random.percent(60);
    agent.who = {l.group, l.first_rank, block, Role::courier, call, false, late};
    agent.slot = l.first_slot + 1 + block * roles_per_cta() * 2;
    agent.async_slot = agent.slot + 1;
    agent.view = self.view;
    agent.at_launch = at_launch;
    agent.device = l.device;
    agent.body = [this, &l, &agent, call] {
      cta(l, agent, call);
      machine_->leave(agent);
    };
    l.ctas.push_back(&agent);
    machine_->scheduler().add(agent);
  }
}

std::string World::why_given_up(const Group& g, u32 rank) {
  WordMemory& words = machine_->words();
  const u64 word = words.latest(words.find(g.memory[rank].abort_word(rank)));
  if (tag_of(word) != g.generation) return "";
  static constexpr const char* kPhases[] = {
      "none",   "start",      "counted",    "counts",       "entry",  "pool",
      "rows",   "act",        "l1 tiles",   "arrived",      "caller", "tile room",
      "copies", "free stage", "full stage", "finished tile"};
  return ": rank " + std::to_string(protocol::abort_rank(word)) + " gave up waiting for " +
         kPhases[static_cast<std::size_t>(protocol::abort_phase(word))];
}

void World::check_results(Launch& l, Agent& self, u32 call) {
  const Group& g = groups_[l.group];
  const bool incomplete =
      s_.trouble == Trouble::missing_cta && call == s_.calls && l.first_rank == 0;
  WordMemory& words = machine_->words();
  const u64 start = words.latest(words.find(&g.memory[l.first_rank].local_header()->start));
  const u32 epoch = call - g.epoch_base + (incomplete ? 0 : 1);
  if (tag_of(start) != epoch) {
    throw Failure("rank " + std::to_string(l.first_rank) + ": call " + std::to_string(call) +
                  " left the epoch at " + std::to_string(tag_of(start)) + ", expected " +
                  std::to_string(epoch) + why_given_up(g, l.first_rank));
  }
  for (u32 rank = l.first_rank; rank < l.first_rank + l.ranks; ++rank) {
    for (u32 token = 0; token < g.routing->num_tokens(call, rank); ++token) {
      for (u32 k = 0; k < s_.granules; ++k) {
        const CellName at{CellKind::y, l.group, rank, token, k, 0};
        if (machine_->read(self, at, Proxy::generic) != data_tag(call, rank, token, 0))
          throw Failure("call " + std::to_string(call) + " did not write " + to_string(at));
      }
    }
  }
}

void World::check_fault(Launch& l, u64 started) {
  const Group& g = groups_[l.group];
  WordMemory& words = machine_->words();
  const u64 start = words.latest(words.find(&g.memory[l.first_rank].local_header()->start));
  const u32 last = s_.trouble == Trouble::caller_abort ? tag_of(start) : 2;
  if (tag_of(start) != last || last > 2)
    throw Failure("the epoch moved in a call that was given up");
  for (u32 rank = l.first_rank; rank < l.first_rank + l.ranks; ++rank) {
    const u64 word = words.latest(words.find(g.memory[rank].abort_word(rank)));
    const std::string who = "rank " + std::to_string(rank);
    if (tag_of(word) != g.generation) throw Failure(who + " was not told that the call is over");
    const u64 counts = words.latest(
        words.find(g.memory[rank].count(g.geometry[rank], rank, parity_of(2), 0, s_.ranks - 1)));
    const bool by_caller = protocol::abort_phase(word) == Phase::caller;
    if (by_caller != (s_.trouble == Trouble::caller_abort))
      throw Failure(who + " was told of a wrong cause");
    // The host names the ranks whose counts are missing, whoever gave up first.
    if (s_.trouble == Trouble::dead_rank && tag_of(counts) == 2)
      throw Failure(who + " cannot name the dead rank");
  }
  // A deadline passes in steps of half of it.
  if (machine_->now() - started > 5 * kDeadlineNs / 2)
    throw Failure("the fault took longer than its deadline");
}

void World::meet_and_reset(Agent& self) {
  meeting_.push_back(&self);
  if (meeting_.size() < launches_.size()) {
    self.waits_for_exits = true;
    const std::size_t before = meeting_.size();
    while (!meeting_.empty() && meeting_.size() >= before) machine_->scheduler().wait();
    self.waits_for_exits = false;
    return;
  }
  // The last one resets for all.
  for (Group& g : groups_) {
    if (!is(Mutant::reset_keeps_abort)) ++g.generation;
    g.epoch_base = 2;
  }
  for (u32 group = 0; group < s_.layers; ++group) reset_words(group);
  const std::vector<Agent*> others = std::move(meeting_);
  meeting_.clear();
  for (Agent* other : others) self.view.join(other->view);
  for (Agent* other : others) {
    other->view.join(self.view);
    machine_->scheduler().wake(*other);
  }
}

}  // namespace megamoe::sim
