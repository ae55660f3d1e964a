#include "sim/model/steps.hpp"

#include <algorithm>

#include "sim/model/small_sets.hpp"

namespace megamoe::sim::model {
State Steps::initial() const {
  State s = {};
  for (int r = 0; r < p_.ranks; ++r) s.rank[r].call = s.rank[r].input = 1;
  return s;
}

bool Steps::finished(const State& s) const {
  for (int r = 0; r < p_.ranks; ++r) {
    if (s.rank[r].is != RankIs::finished) return false;
  }
  return true;
}

Steps::Tile Steps::tile(int call, int r, int ticket) const {
  const int blocks = routing_.blocks[call][r];
  const auto end = [&](int first) { return std::min(first + p_.group, blocks); };
  int i = 0;
  for (int first = 0; first < blocks + p_.lag; first += p_.group) {
    for (int block = first; block < end(first); ++block) {
      if (i++ == ticket) return {false, block};
    }
    const int trailing = first - p_.lag;
    for (int block = trailing; trailing >= 0 && block < end(trailing); ++block) {
      if (i++ == ticket) return {true, block};
    }
  }
  return {true, 0};
}

int Steps::counts_in(const State& s, int r, int call) const {
  for (int src = 0; src < p_.ranks; ++src) {
    if (p_.variant.zero_counts_unpublished && routing_.rows(call, src, r) == 0) continue;
    const int seen = s.rank[r].count[parity(call)][src];
    if (seen > call) return -1;
    if (seen != call) return 0;
  }
  return 1;
}

bool Steps::start(State& s, int r, Cta& c, int index) const {
  Rank& k = s.rank[r];
  const bool again = p_.variant.next_kernel_early && c.is == CtaIs::gone && k.exits < p_.ctas;
  if (k.is != RankIs::in_call || (c.is != CtaIs::absent && !again)) return false;
  if (p_.virtual_ranks && !p_.variant.static_deal) {
    // Start numbers are dealt to the ranks in turn.
    int started = 0;
    for (int other = 0; other < p_.ranks; ++other) {
      const Rank& o = s.rank[other];
      if (o.call != k.call || o.is != RankIs::in_call) {
        started += o.call >= k.call ? p_.ctas : 0;
        continue;
      }
      for (int i = 0; i < p_.ctas; ++i) started += o.cta[i].is != CtaIs::absent ? 1 : 0;
    }
    if (started % p_.ranks != r) return false;
  }
  int running = 0;
  for (int other = 0; other < p_.ranks; ++other) {
    if (other != r && !p_.virtual_ranks) continue;
    for (int i = 0; i < p_.ctas; ++i) running += s.rank[other].cta[i].is == CtaIs::running ? 1 : 0;
  }
  if (running >= p_.resident) return false;
  c = {};
  c.is = CtaIs::running;
  if (p_.variant.route_by_block_index && index != 0) c.courier = CourierAt::plan;
  return true;
}

bool Steps::publish(State& s, int r, Cta& c, bool counts) const {
  const int call = s.rank[r].call;
  const int to = c.dst;
  if (counts) {
    const bool silent = p_.variant.zero_counts_unpublished && routing_.rows(call, r, to) == 0;
    if (!silent) s.rank[to].count[parity(call)][r] = small(call);
    c.courier = CourierAt::publish_list;
    return true;
  }
  s.rank[to].list[parity(call)][r] = small(call);
  c.dst = small(to + 1);
  c.courier = c.dst == p_.ranks ? CourierAt::plan : CourierAt::publish_counts;
  return true;
}

bool Steps::copy(State& s, int r, Cta& c, bool ends, std::string& error) const {
  Rank& k = s.rank[r];
  const int call = k.call;
  const int b = c.pull - 1;
  const int src = routing_.block[call][r][b].src;
  const int old = k.pool[b % p_.pool_slots] - 1;
  if (k.list[parity(call)][src] != call)
    error = at_of(r, call, b) + "reads a list of call " + std::to_string(k.list[parity(call)][src]);
  if (s.rank[src].input != call)
    error = at_of(r, call, b) + "pulls inputs of call " + std::to_string(s.rank[src].input);
  if (old >= 0 && !bit(k.l1, old))
    error = at_of(r, call, b) + "overwrites the pool slot of block " + std::to_string(old);
  if (!ends) {
    c.courier = CourierAt::copy;
    return true;
  }
  k.pool[b % p_.pool_slots] = small(b + 1);
  c.pulled = 1;
  if (p_.variant.rows_deferred) {
    if (c.held != 0) add_bit(k.ready, c.held - 1);
    c.held = c.pull;
  } else {
    add_bit(k.ready, b);
  }
  c.pull = 0;
  c.courier = CourierAt::claim;
  return true;
}

bool Steps::sum(State& s, int r, SumAt& at, std::string& error) const {
  Rank& k = s.rank[r];
  if (at == SumAt::claim) {
    at = k.summed == 0 ? SumAt::await : SumAt::done;
    k.summed = 1;
    return true;
  }
  const bool blind = p_.variant.leaves_without_arrived;
  if (at == SumAt::await) {
    for (int dst = 0; dst < p_.ranks && !blind; ++dst) {
      const int missing = routing_.rows(k.call, r, dst) - (k.arrived[dst] - k.expected[dst]);
      if (missing < 0) error = at_call(r, k.call) + "more contributions than were sent";
      if (missing != 0) return false;
    }
  }
  for (int token = 0; token < p_.tokens && !blind; ++token) {
    if (routing_.dst[k.call][r][token] >= 0 && k.combine[token] != k.call)
      error = at_of(r, k.call, token) + "sums a slot of call " + std::to_string(k.combine[token]);
  }
  at = at == SumAt::await ? SumAt::add : SumAt::done;
  return true;
}

bool Steps::claim_pull(Rank& k, Cta& c, int blocks) const {
  if ((c.next_pull != 0 || k.pull_ticket < blocks) &&
      !(p_.variant.sum_after_one_pull && c.pulled != 0)) {
    c.pull = c.next_pull != 0 ? c.next_pull : ++k.pull_ticket;
    c.next_pull = 0;
    c.courier = p_.pipelined ? CourierAt::ahead : CourierAt::slot;
    return true;
  }
  if (c.held != 0) add_bit(k.ready, c.held - 1);
  c.held = 0;
  c.courier = p_.variant.sum_first ? CourierAt::done : CourierAt::sum;
  return true;
}

bool Steps::courier(State& s, int r, Cta& c, int index, std::string& error) const {
  Rank& k = s.rank[r];
  const int blocks = routing_.blocks[k.call][r];
  switch (c.courier) {
    case CourierAt::route:
      c.courier = k.routed == 0 ? CourierAt::publish_counts : CourierAt::plan;
      k.routed = 1;
      return true;
    case CourierAt::publish_counts:
    case CourierAt::publish_list:
      return publish(s, r, c, c.courier == CourierAt::publish_counts);
    case CourierAt::plan: {
      const int in = counts_in(s, r, k.call);
      if (in < 0) error = at_of(r, k.call, 0) + "counts of a later call";
      if (in > 0) c.courier = p_.variant.sum_first ? CourierAt::sum : CourierAt::claim;
      return in != 0;
    }
    case CourierAt::claim:
      return claim_pull(k, c, blocks);
    case CourierAt::ahead:
      if (k.pull_ticket < blocks) c.next_pull = ++k.pull_ticket;
      c.courier = CourierAt::entry;
      return true;
    case CourierAt::slot: {
      const int old = c.pull - 1 - p_.pool_slots;
      if (old >= 0 && !bit(k.l1, old) && !p_.variant.pool_not_awaited) return false;
      if (p_.pipelined) return copy(s, r, c, false, error);
      c.courier = CourierAt::entry;
      return true;
    }
    case CourierAt::entry: {
      const int src = routing_.block[k.call][r][c.pull - 1].src;
      if (!p_.variant.plain_lists && k.list[parity(k.call)][src] < k.call) return false;
      if (p_.pipelined) {
        c.courier = CourierAt::slot;
        return true;
      }
      return copy(s, r, c, false, error);
    }
    case CourierAt::copy:
      return copy(s, r, c, true, error);
    case CourierAt::sum: {
      if (!sum(s, r, c.courier_sum, error)) return false;
      if (c.courier_sum == SumAt::done)
        c.courier = p_.variant.sum_first ? CourierAt::claim : CourierAt::done;
      return true;
    }
    case CourierAt::done:
      return false;
  }
  return index < 0;
}

bool Steps::check_inputs(const Rank& k, int r, const Tile& t, std::string& error) const {
  const int held = (t.is_l2 ? k.act[t.block % p_.act_slots] : k.pool[t.block % p_.pool_slots]) - 1;
  if (held != t.block)
    error = at_of(r, k.call, t.block) + (t.is_l2 ? "L2" : "L1") + " finds block " +
            std::to_string(held);
  return true;
}

bool Steps::math_inputs(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  const Tile t = tile(k.call, r, c.ticket - 1);
  if (!bit(t.is_l2 ? k.l1 : k.ready, t.block)) return false;
  c.math = t.is_l2 ? MathAt::l2 : MathAt::act_slot;
  return check_inputs(k, r, t, error);
}

bool Steps::act_is_free(const Rank& k, int block) const {
  const int old = block - p_.act_slots;
  return old < 0 || bit(k.l2, old) || p_.variant.act_not_awaited;
}

bool Steps::check_act(const Rank& k, int r, int block, std::string& error) const {
  const int held = k.act[block % p_.act_slots] - 1;
  if (held >= 0 && !bit(k.l2, held))
    error = at_of(r, k.call, block) + "overwrites the act slot of block " + std::to_string(held);
  return true;
}

bool Steps::l1(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  const int b = tile(k.call, r, c.ticket - 1).block;
  if (k.pool[b % p_.pool_slots] != b + 1) error = at_of(r, k.call, b) + "L1 loses its pool slot";
  k.act[b % p_.act_slots] = small(b + 1);
  if (p_.variant.l1_deferred) {
    if (c.l1_untold != 0) add_bit(k.l1, c.l1_untold - 1);
    c.l1_untold = small(b + 1);
  } else {
    add_bit(k.l1, b);
  }
  c.ticket = 0;
  c.math = MathAt::claim;
  return true;
}

bool Steps::contribute(State& s, int r, int block, std::string& error) const {
  Rank& k = s.rank[r];
  const Routing::Block row = routing_.block[k.call][r][block];
  Rank& src = s.rank[row.src];
  if (k.act[block % p_.act_slots] != block + 1)
    error = at_of(r, k.call, block) + "L2 loses its act slot";
  if (src.call != k.call || src.is != RankIs::in_call)
    error = at_of(r, k.call, block) + "writes to rank " + std::to_string(row.src) +
            ", which is in call " + std::to_string(src.call);
  if (src.combine[row.token] == k.call) error = at_of(r, k.call, block) + "contributes twice";
  src.combine[row.token] = k.call;
  return true;
}

bool Steps::l2(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  const int b = tile(k.call, r, c.ticket - 1).block;
  if (c.math == MathAt::l2) {
    c.math = MathAt::tell;
    return contribute(s, r, b, error);
  }
  ++s.rank[routing_.block[k.call][r][b].src].arrived[r];
  add_bit(k.l2, b);
  if (c.l1_untold != 0) add_bit(k.l1, c.l1_untold - 1);
  c.l1_untold = 0;
  c.ticket = 0;
  c.math = MathAt::claim;
  return true;
}

bool Steps::math(State& s, int r, Cta& c, std::string& error) const {
  Rank& k = s.rank[r];
  switch (c.math) {
    case MathAt::plan:
      if (counts_in(s, r, k.call) != 1) return false;
      c.math = MathAt::claim;
      return true;
    case MathAt::claim:
      if (c.next == 0 && k.gemm_ticket >= total_tickets(k.call, r)) {
        if (c.l1_untold != 0) add_bit(k.l1, c.l1_untold - 1);
        c.l1_untold = 0;
        c.math = p_.pipelined ? MathAt::sum : MathAt::done;
        return true;
      }
      c.ticket = c.next != 0 ? c.next : ++k.gemm_ticket;
      c.next = 0;
      c.math = p_.pipelined ? MathAt::stage : MathAt::inputs;
      return true;
    case MathAt::stage:
    case MathAt::ahead:
    case MathAt::load:
    case MathAt::sum:
      return scheduler(s, r, c, error);
    case MathAt::inputs:
      return p_.pipelined ? scheduler(s, r, c, error) : math_inputs(s, r, c, error);
    case MathAt::act_slot: {
      const int b = tile(k.call, r, c.ticket - 1).block;
      if (!act_is_free(k, b)) return false;
      c.math = MathAt::l1;
      return check_act(k, r, b, error);
    }
    case MathAt::l1:
      return l1(s, r, c, error);
    case MathAt::l2:
    case MathAt::tell:
      return l2(s, r, c, error);
    case MathAt::done:
      return false;
  }
  return false;
}

bool Steps::step_cta(State& s, int r, int index, int step, std::string& error) const {
  Rank& k = s.rank[r];
  Cta& c = k.cta[index];
  if (step == 0) return start(s, r, c, index);
  if (c.is != CtaIs::running) return false;
  switch (step) {
    case 1:
      return courier(s, r, c, index, error);
    case 2:
      return math(s, r, c, error);
    case 3: {
      const bool busy = c.math > MathAt::claim && c.math < MathAt::sum;
      if (!p_.claims_ahead || !busy || c.next != 0) return false;
      if (k.gemm_ticket >= total_tickets(k.call, r)) return false;
      c.next = ++k.gemm_ticket;
      return true;
    }
    case 4:
      return gpu_math(s, r, c, error);
    case 5:
      return gpu_publisher(s, r, c);
    default:
      return exit(s, r, c);
  }
}

bool Steps::apply(State& s, int r, int step, std::string& error) const {
  const Rank& k = s.rank[r];
  if (k.is == RankIs::finished) return false;
  if (step >= p_.ctas * kPerCta) return step == p_.ctas * kPerCta ? leave(s, r) : next_call(s, r);
  return k.is == RankIs::in_call && step_cta(s, r, step / kPerCta, step % kPerCta, error);
}

}  // namespace megamoe::sim::model
