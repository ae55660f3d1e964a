#include "sim/model/small_sets.hpp"
#include "sim/model/steps.hpp"

/// The steps of a CTA with the GPU's roles.
namespace megamoe::sim::model {

bool Steps::scheduler(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  if (c.math == MathAt::sum) {
    if (!sum(s, r, c.math_sum, error)) return false;
    if (c.math_sum == SumAt::done) c.math = MathAt::done;
    return true;
  }
  if (c.math == MathAt::stage) {
    // Weights start once the ring has room, before the inputs are there.
    if (c.loaded != 0) return false;
    c.math = MathAt::inputs;
    return true;
  }
  if (c.math == MathAt::ahead) {
    if (k.gemm_ticket < total_tickets(k.call, r)) c.next = ++k.gemm_ticket;
    c.math = MathAt::load;
    return true;
  }
  const auto is_met = [&](const Tile& t) {
    return t.is_l2 ? bit(k.l1, t.block) : bit(k.ready, t.block) && act_is_free(k, t.block);
  };
  const Tile t = tile(k.call, r, c.ticket - 1);
  if (c.math == MathAt::inputs) {
    if (!is_met(t)) return false;
    c.math = MathAt::ahead;
    return check_inputs(k, r, t, error);
  }
  if (p_.variant.waits_for_next && c.next != 0 && !is_met(tile(k.call, r, c.next - 1)))
    return false;
  c.loaded = c.ticket;
  c.ticket = 0;
  c.math = MathAt::claim;
  return true;
}

bool Steps::gpu_math(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  if (c.computing == 0) {
    if (c.loaded == 0) return false;
    c.computing = c.loaded;
    c.loaded = 0;
    return check_inputs(k, r, tile(k.call, r, c.computing - 1), error);
  }
  if (c.stored != 0) return false;
  const Tile t = tile(k.call, r, c.computing - 1);
  if (t.is_l2) {
    contribute(s, r, t.block, error);
  } else {
    check_act(k, r, t.block, error);
    k.act[t.block % p_.act_slots] = small(t.block + 1);
  }
  c.stored = c.computing;
  c.computing = 0;
  return true;
}

bool Steps::gpu_publisher(State& s, int r, Cta& c) const {
  Rank& k = s.rank[r];
  if (c.stored == 0) return false;
  const Tile t = tile(k.call, r, c.stored - 1);
  if (t.is_l2) {
    ++s.rank[routing_.block[k.call][r][t.block].src].arrived[r];
    add_bit(k.l2, t.block);
  } else {
    add_bit(k.l1, t.block);
  }
  c.stored = 0;
  return true;
}

bool Steps::exit(State& s, int r, Cta& c) const {
  Rank& k = s.rank[r];
  if (c.courier != CourierAt::done || c.math != MathAt::done) return false;
  if (c.loaded != 0 || c.computing != 0 || c.stored != 0) return false;
  c = {};
  c.is = CtaIs::gone;
  ++k.exits;
  if (k.exits == p_.ctas || p_.variant.first_out_leaves) k.is = RankIs::leaving;
  return true;
}

bool Steps::leave(State& s, int r) const {
  Rank& k = s.rank[r];
  if (k.is != RankIs::leaving) return false;
  for (int dst = 0; dst < p_.ranks; ++dst)
    k.expected[dst] = small(k.expected[dst] + routing_.rows(k.call, r, dst));
  k.routed = k.pull_ticket = k.gemm_ticket = k.summed = k.exits = 0;
  k.ready = k.l1 = k.l2 = 0;
  k.pool = {};
  k.act = {};
  k.cta = {};
  k.is = RankIs::between;
  return true;
}

bool Steps::next_call(State& s, int r) const {
  Rank& k = s.rank[r];
  if (k.is != RankIs::between) return false;
  if (p_.virtual_ranks) {
    // One launch: it ends when all its ranks have.
    for (int other = 0; other < p_.ranks; ++other) {
      const Rank& o = s.rank[other];
      if (o.call == k.call && o.is != RankIs::between) return false;
    }
  }
  ++k.call;
  k.is = k.call > p_.calls ? RankIs::finished : RankIs::in_call;
  if (k.is == RankIs::in_call) k.input = k.call;
  return true;
}

}  // namespace megamoe::sim::model
