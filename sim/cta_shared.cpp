#include "sim/cta_shared.hpp"

namespace megamoe::sim {

void arrive(SimCall& c, u64& barrier) {
  c.env.fetch_add<Order::release, Scope::cta>(&barrier, u64{1});
}

bool has_arrived(SimCall& c, const u64& barrier, u64 target) {
  return c.env.load<Order::acquire, Scope::cta>(&barrier) >= target;
}

bool wait_barrier(SimCall& c, const u64& barrier, u64 target, protocol::Phase phase,
                  const u64* closed) {
  const bool patient = is(c, Mutant::barrier_wait_unbounded) || is(c, Mutant::no_deadline);
  const u64 patience = protocol::inner_patience_ns(phase, c.deadline_ns, c.deadline_ns / 2);
  u64 started = 0;
  while (!has_arrived(c, barrier, target)) {
    const u64 now = c.env.now();
    if (started == 0) started = now;
    const bool expired = !patient && now - started > patience;
    if (expired || (closed != nullptr && has_arrived(c, *closed, 1))) {
      if (has_arrived(c, barrier, target)) return true;
      protocol::raise_inner_fault(c, phase, c.g.rank, 0);
      return false;
    }
    c.env.machine().pause(c.env.agent(), closed != nullptr ? 2 : 1);
  }
  return true;
}

namespace {

CellName shared_cell(const SimCall& c, CellKind kind, u64 slot) {
  return {kind, c.env.agent().who.group, c.g.rank, c.cta, static_cast<u32>(slot), 0};
}

}  // namespace

void fill_shared(SimCall& c, CellKind kind, u64 slot, u64 which) {
  c.env.machine().write(c.env.agent(), shared_cell(c, kind, slot), Proxy::generic, which);
}

void expect_shared(SimCall& c, CellKind kind, u64 slot, u64 which) {
  const CellName at = shared_cell(c, kind, slot);
  const u64 seen = c.env.machine().read(c.env.agent(), at, Proxy::generic);
  if (seen == which) return;
  throw Failure("wrong data: " + to_string(c.env.agent().who) + " finds number " +
                std::to_string(seen) + " in " + to_string(at) + ", expected " +
                std::to_string(which));
}

}  // namespace megamoe::sim
