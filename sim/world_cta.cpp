#include "protocol/agents/courier.hpp"
#include "protocol/agents/gemm_agent.hpp"
#include "protocol/leave.hpp"
#include "sim/cta_roles.hpp"
#include "sim/cta_scheduler.hpp"
#include "sim/random.hpp"
#include "sim/world.hpp"

namespace megamoe::sim {

using protocol::Entry;

Agent& World::spawn(Agent& parent, Role role, u32 index, std::function<void(Agent&)> body) {
  Agent& agent = machine_->scheduler().make_agent(num_slots_);
  agent.who = parent.who;
  agent.who.role = role;
  agent.who.is_late = false;
  agent.slot = parent.slot + 2 * index;
  agent.async_slot = agent.slot + 1;
  agent.view = parent.view;
  agent.at_launch = parent.at_launch;
  agent.body = [this, &agent, body = std::move(body)] {
    body(agent);
    machine_->leave(agent);
  };
  machine_->scheduler().add(agent);
  return agent;
}

Entry World::enter(Launch& l, SimEnv& env, u32 call) {
  LocalHeader* header = groups_[l.group].memory[l.first_rank].local_header();
  Entry e = protocol::enter(env, header, l.ranks, l.grid);
  // A graph of two calls that is replayed: its kernel arguments come again.
  if (is(Mutant::epoch_is_launch_id)) e.epoch = 1 + (call - 1) % 2;
  if (is(Mutant::ranks_dealt_by_block_index)) e.rank = env.agent().who.cta % l.ranks;
  if (is(Mutant::whole_grid_barrier)) {
    while (protocol::value_of(env.load<Order::acquire, Scope::gpu>(&header->start)) < l.grid)
      env.pause();
  }
  return e;
}

void World::cta(Launch& l, Agent& self, u32 call) {
  SimEnv env(*machine_, self);
  const Entry entry = enter(l, env, call);
  Group& g = groups_[l.group];
  const u32 rank = l.first_rank + entry.rank;
  self.who.rank = rank;
  const u64 deadline = is(Mutant::no_deadline) ? ~u64{0} : kDeadlineNs;
  SimCall c{env,
            g.geometry[rank],
            g.memory[rank],
            &g.records[rank],
            deadline,
            g.routing->num_tokens(call, rank),
            entry.grid,
            entry.cta,
            entry.epoch,
            g.generation,
            Role::courier};
  for (u32 i = 0; i < roles_per_cta(); ++i)
    machine_->set_call(self.slot + 2 * i,
                       {call, entry.epoch, entry.grid, g.geometry[rank].l2_tile_granules});
  Random random(seed_ ^ mix(call * 128 + rank));
  CallData data{&g.geometry[rank], g.routing.get(), l.group, call};
  if (warps_) {
    data.scales = data.sums = Proxy::generic;
    if (random.percent(50)) data.pulls = Proxy::generic;  // as in decode
  } else {
    if (random.percent(30)) data.pulls = data.rings = Proxy::generic;
    if (random.percent(30)) data.sums = Proxy::generic;
  }
  data.stops_after_counts =
      s_.trouble == Trouble::stuck_rank && is_troubled(call) && rank == s_.ranks - 1;
  if (!(warps_ ? run_warps(self, c, data) : run_threads(self, c, data))) return;
  if (!protocol::last_out(c)) return;
  protocol::finish(c, g.memory[l.first_rank].local_header(), l.ranks);
}

namespace {

/// The same call as another role of the CTA sees it.
SimCall call_of(const SimCall& c, SimEnv& env, Role role) {
  return {env,    c.g,   c.m,     c.record,     c.deadline_ns, c.num_tokens,
          c.grid, c.cta, c.epoch, c.generation, role};
}

}  // namespace

bool World::run_threads(Agent& self, SimCall& c, const CallData& data) {
  if (!protocol::may_start(c)) return false;
  bool gemms_done = false;
  const auto gemms = [this, &c, &data, &gemms_done](Agent& agent) {
    SimEnv env(*machine_, agent);
    SimCall call = call_of(c, env, Role::math);
    Work work(*machine_, agent, data);
    gemms_done = protocol::GemmAgent<SimEnv, Work>(call, work).run();
  };
  Agent* math = is(Mutant::one_agent_per_cta) ? nullptr : &spawn(self, Role::math, 1, gemms);
  Work work(*machine_, self, data);
  const bool courier_done = protocol::Courier<SimEnv, Work>(c, work).run();
  if (math == nullptr) {
    gemms(self);
  } else {
    machine_->scheduler().join({math});
  }
  return courier_done && gemms_done;
}

bool World::run_warps(Agent& self, SimCall& c, const CallData& data) {
  Work work(*machine_, self, data);
  CtaShared shared(c.g, shape_);
  if (!CtaRoles::route(c, work) || !shared.plan.read(c, 0)) return false;
  name_barriers(shared, c.g.rank, self.who.cta);
  bool all_done = true;
  const auto role = [&](Role r, u32 i, auto body) {
    return &spawn(self, r, i, [this, &c, &data, &shared, &all_done, r, body](Agent& agent) {
      SimEnv env(*machine_, agent);
      SimCall call = call_of(c, env, r);
      Work its_work(*machine_, agent, data);
      const bool done = body(call, shared, its_work) && CtaRoles::sum(call, shared, its_work);
      all_done = all_done && done;
    });
  };
  const auto schedule = [](SimCall& call, CtaShared& s, Work& w) {
    return TileScheduler(call, s, w).run();
  };
  machine_->scheduler().join(
      {role(Role::scheduler, 1, schedule), role(Role::courier, 2, &CtaRoles::pull),
       role(Role::courier, 3, &CtaRoles::pull), role(Role::publisher, 4, &CtaRoles::publish),
       role(Role::math, 5, &CtaRoles::math)});
  return all_done;
}

void World::name_barriers(const CtaShared& shared, u32 rank, u32 cta) {
  u32 index = 0;
  const auto name = [&](const u64& barrier) {
    machine_->words().add_word(&barrier, {WordKind::barrier, 0, rank, cta, index++});
  };
  for (u32 i = 0; i < shared.shape.stages; ++i) {
    name(shared.ring[i].full);
    name(shared.ring[i].empty);
  }
  for (const CtaShared::Done& done : shared.done) {
    name(done.full);
    name(done.empty);
  }
  name(shared.closed);
}

}  // namespace megamoe::sim
