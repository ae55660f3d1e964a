#include "sim/mutation.hpp"

#include "protocol/words.hpp"

namespace megamoe::sim {
namespace {

using protocol::tag_of;
using protocol::tagged;
using protocol::value_of;

enum class Who : unsigned char { anyone, courier, math };

/// A mutant that weakens every operation of one kind on one kind of word.
struct Weakening {
  Mutant mutant;
  WordKind word;
  OpKind op;
  Who who;
  bool order;  ///< makes it relaxed
  bool scope;  ///< narrows it to `to`
  Scope to;
};
constexpr Weakening kWeakenings[] = {
    {Mutant::staged_input_unreleased, WordKind::count, OpKind::store, Who::anyone, true, false, {}},
    {Mutant::staged_input_unreleased, WordKind::list, OpKind::store, Who::anyone, true, false, {}},
    {Mutant::staged_input_unacquired, WordKind::count, OpKind::load, Who::anyone, true, false, {}},
    {Mutant::staged_input_unacquired, WordKind::list, OpKind::load, Who::anyone, true, false, {}},
    {Mutant::staged_input_gpu_scope, WordKind::count, OpKind::store, Who::anyone, false, true,
     Scope::gpu},
    {Mutant::staged_input_gpu_scope, WordKind::list, OpKind::store, Who::anyone, false, true,
     Scope::gpu},
    {Mutant::counted_relaxed,
     WordKind::route_counted,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::rows_ready_unreleased,
     WordKind::rows_ready,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::rows_ready_unacquired,
     WordKind::rows_ready,
     OpKind::load,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::rows_ready_cta_scope, WordKind::rows_ready, OpKind::fetch_add, Who::anyone, false,
     true, Scope::cta},
    {Mutant::l1_done_unreleased,
     WordKind::l1_done,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::l1_done_unacquired_by_l2, WordKind::l1_done, OpKind::load, Who::math, true, false, {}},
    {Mutant::l1_done_unacquired_by_pull,
     WordKind::l1_done,
     OpKind::load,
     Who::courier,
     true,
     false,
     {}},
    {Mutant::l2_done_unreleased,
     WordKind::l2_done,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::l2_done_unacquired, WordKind::l2_done, OpKind::load, Who::anyone, true, false, {}},
    {Mutant::arrived_unreleased,
     WordKind::arrived,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::arrived_unacquired, WordKind::arrived, OpKind::load, Who::anyone, true, false, {}},
    {Mutant::arrived_added_at_gpu_scope, WordKind::arrived, OpKind::fetch_add, Who::anyone, false,
     true, Scope::gpu},
    {Mutant::arrived_read_at_gpu_scope, WordKind::arrived, OpKind::load, Who::anyone, false, true,
     Scope::gpu},
    {Mutant::count_alone_unreleased, WordKind::count, OpKind::store, Who::anyone, true, false, {}},
    {Mutant::entry_alone_unreleased, WordKind::list, OpKind::store, Who::anyone, true, false, {}},
    {Mutant::exit_relaxed, WordKind::exit_count, OpKind::fetch_add, Who::anyone, true, false, {}},
    {Mutant::ranks_out_relaxed,
     WordKind::ranks_out,
     OpKind::fetch_add,
     Who::anyone,
     true,
     false,
     {}},
    {Mutant::abort_at_gpu_scope, WordKind::abort_word, OpKind::store, Who::anyone, false, true,
     Scope::gpu},
};

/// A mutant that leaves out one proxy fence. Every role sums, after its last wait for `arrived`.
struct MissingFence {
  Mutant mutant;
  bool to_async;
  bool by_courier;
  bool of_sum;
};
constexpr MissingFence kMissingFences[] = {
    {Mutant::no_fence_after_pull, true, true, false},
    {Mutant::no_fence_before_sum, true, false, true},
    {Mutant::no_fence_before_pool_reuse, false, true, false},
    {Mutant::no_fence_after_l1, true, false, false},
    {Mutant::no_fence_before_act_reuse, false, false, false},
};

bool is_add(const Op& op, const WordName& word, WordKind kind) {
  return op.kind == OpKind::fetch_add && word.kind == kind;
}

void skip_with(Op& op, u64 result) {
  op.skip = true;
  op.value = result;
}

}  // namespace

void Mutation::weaken(const Agent& agent, const WordName& word, Op& op) const {
  for (const Weakening& w : kWeakenings) {
    if (w.mutant != mutant_ || w.word != word.kind || w.op != op.kind) continue;
    const bool courier = agent.who.role == Role::courier;
    if ((w.who == Who::courier && !courier) || (w.who == Who::math && courier)) continue;
    if (w.order) op.access.order = Order::relaxed;
    if (w.scope) op.access.scope = w.to;
  }
}

bool Mutation::drops_fence(const Agent& agent, bool to_async, WordKind last) const {
  for (const MissingFence& f : kMissingFences) {
    if (f.mutant != mutant_ || f.to_async != to_async) continue;
    if (f.of_sum != (last == WordKind::arrived)) continue;
    if (f.of_sum || f.by_courier == (agent.who.role == Role::courier)) return true;
  }
  return false;
}

bool Mutation::flushes(const WordName& word, const Op& op) const {
  if (op.kind != OpKind::fetch_add) return false;
  if (is(Mutant::rows_ready_deferred))
    return word.kind == WordKind::rows_ready || word.kind == WordKind::sum_ticket;
  return is(Mutant::l1_done_deferred) &&
         (word.kind == WordKind::l1_done || word.kind == WordKind::l2_done);
}

u32 Mutation::l2_tiles(const CallFacts& call) const {
  return (facts_.hidden_granules + call.l2_tile_granules - 1) / call.l2_tile_granules;
}

u64 Mutation::forge(const Agent& agent, const WordName& word, const CallFacts& call, const Op& op,
                    u64 value) {
  const bool is_load = op.kind == OpKind::load;
  if (is_load && word.kind == WordKind::expected) expected_[agent.slot] = value_of(value);
  switch (mutant_) {
    case Mutant::counts_before_plain_lists:
      // Entries that do not say which call wrote them: any value passes.
      return is_load && word.kind == WordKind::list ? tagged(call.epoch, value_of(value)) : value;
    case Mutant::one_parity:
    case Mutant::zero_counts_unpublished:
      // Words of earlier calls are as good as empty, whichever call wrote them; a later call's is
      // the fault to be found.
      return is_load && word.kind == WordKind::count && tag_of(value) < call.epoch ? 0 : value;
    case Mutant::first_out_leaves:
      if (!is_add(op, word, WordKind::exit_count)) return value;
      return value == 0 ? call.grid - 1 : call.grid;
    case Mutant::arrived_in_tiles:
      // The total of the call before, back in granules, since the protocol adds granules to it.
      if (is_load && word.kind == WordKind::expected && word.parity != (call.epoch & 1U))
        return tagged(tag_of(value), value_of(value) / l2_tiles(call) * facts_.hidden_granules);
      return value;
    default:
      return value;
  }
}

void Mutation::change_counts(const Agent& agent, const WordName& word, const CallFacts& call,
                             Op& op) const {
  const bool is_store = op.kind == OpKind::store;
  if (is(Mutant::one_parity) && (word.kind == WordKind::count || word.kind == WordKind::list)) {
    if (word.parity == 1) {
      op.access.address =
          static_cast<const std::byte*>(op.access.address) - facts_.parity_bytes(word.kind);
    }
  }
  if (is(Mutant::zero_counts_unpublished) && word.kind == WordKind::count) {
    // Who gets nothing is told nothing, and somehow knows.
    const u32 src = is_store ? agent.who.rank : word.index / facts_.local_experts;
    if (facts_.rows(call.call, src, word.owner) == 0) skip_with(op, tagged(call.epoch, 0));
  }
  if (is(Mutant::arrived_in_tiles)) {
    if (is_add(op, word, WordKind::arrived))
      op.value = (op.value + call.l2_tile_granules - 1) / call.l2_tile_granules;
    if (is_store && word.kind == WordKind::expected)
      op.value =
          tagged(tag_of(op.value), value_of(op.value) / facts_.hidden_granules * l2_tiles(call));
  }
}

void Mutation::change_clearing(const WordName& word, const CallFacts& call, Op& op) const {
  const bool clears = op.kind == OpKind::store && op.value == 0 &&
                      facts_.parity_bytes(word.kind) != 0 && word.kind != WordKind::count &&
                      word.kind != WordKind::list && word.kind != WordKind::expected;
  if (clears && is(Mutant::not_cleared)) skip_with(op, 0);
  if (clears && is(Mutant::clears_own_parity)) {
    const auto* address = static_cast<const std::byte*>(op.access.address);
    const std::size_t bytes = facts_.parity_bytes(word.kind);
    op.access.address = word.parity == 1 ? address - bytes : address + bytes;
  }
  if (is(Mutant::epoch_not_advanced) && op.kind == OpKind::store && word.kind == WordKind::start)
    op.value = tagged(call.epoch, 0);
}

void Mutation::change_tickets(const Agent& agent, const WordName& word, Op& op) {
  switch (mutant_) {
    case Mutant::sum_with_pulls_unclaimed:
      // A courier that has pulled once goes on to the sum.
      if (is_add(op, word, WordKind::pull_ticket) && !pulled_.insert(&agent).second)
        skip_with(op, ~0U);
      break;
    case Mutant::sum_without_arrived:
      // The wait is over at once: what has arrived is what is expected.
      if (op.kind == OpKind::load && word.kind == WordKind::arrived)
        skip_with(op, expected_[agent.slot]);
      break;
    case Mutant::duty_by_block_index:
      if (is_add(op, word, WordKind::route_ticket) && agent.who.cta != 0) skip_with(op, ~0U);
      break;
    case Mutant::pool_slot_not_awaited:
      if (op.kind == OpKind::load && word.kind == WordKind::l1_done &&
          agent.who.role == Role::courier)
        skip_with(op, ~0U);
      break;
    case Mutant::act_slot_not_awaited:
      if (op.kind == OpKind::load && word.kind == WordKind::l2_done) skip_with(op, ~0U);
      break;
    case Mutant::rows_ready_deferred:
      op.defer = is_add(op, word, WordKind::rows_ready);
      break;
    case Mutant::l1_done_deferred:
      op.defer = is_add(op, word, WordKind::l1_done);
      break;
    default:
      break;
  }
}

void Mutation::change(const Agent& agent, const WordName& word, const CallFacts& call, Op& op) {
  weaken(agent, word, op);
  change_counts(agent, word, call, op);
  change_clearing(word, call, op);
  change_tickets(agent, word, op);
  if (word.kind != WordKind::abort_word) return;
  const bool to_peer = op.kind == OpKind::store && word.owner != agent.who.rank;
  if (is(Mutant::abort_not_sent) && to_peer) skip_with(op, 0);
  if (is(Mutant::abort_not_checked) && op.kind == OpKind::load) skip_with(op, 0);
}

}  // namespace megamoe::sim
