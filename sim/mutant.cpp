#include "sim/mutant.hpp"

namespace megamoe::sim {
namespace {

constexpr MutantInfo kMutants[] = {
    {Mutant::staged_input_unreleased, "staged_input_unreleased",
     "counts and list entries release the staged input", "small"},
    {Mutant::staged_input_unacquired, "staged_input_unacquired",
     "who reads counts and entries acquires the source's input", "small"},
    {Mutant::staged_input_gpu_scope, "staged_input_gpu_scope",
     "what other ranks read is published at sys scope", "small"},
    {Mutant::counted_relaxed, "counted_relaxed",
     "a route chunk releases its counts; the last one acquires all", "route_chunks"},
    {Mutant::rows_ready_unreleased, "rows_ready_unreleased", "a pull releases its rows", "small"},
    {Mutant::rows_ready_unacquired, "rows_ready_unacquired", "L1 acquires the rows", "small"},
    {Mutant::rows_ready_cta_scope, "rows_ready_cta_scope", "rows are published to the whole GPU",
     "two_ctas"},
    {Mutant::l1_done_unreleased, "l1_done_unreleased", "L1 releases the act slot", "two_ctas"},
    {Mutant::l1_done_unacquired_by_l2, "l1_done_unacquired_by_l2", "L2 acquires the act slot",
     "two_ctas"},
    {Mutant::l1_done_unacquired_by_pull, "l1_done_unacquired_by_pull",
     "a pull acquires L1's reads of its pool slot", "tight_rings"},
    {Mutant::l2_done_unreleased, "l2_done_unreleased", "L2 releases its reads of the act slot",
     "tight_rings"},
    {Mutant::l2_done_unacquired, "l2_done_unacquired", "L1 acquires L2's reads of its act slot",
     "tight_rings"},
    {Mutant::arrived_unreleased, "arrived_unreleased", "L2 releases its contributions", "small"},
    {Mutant::arrived_unacquired, "arrived_unacquired", "the sum acquires the contributions",
     "small"},
    {Mutant::arrived_added_at_gpu_scope, "arrived_added_at_gpu_scope",
     "the scope is that of the payload's last reader", "small"},
    {Mutant::arrived_read_at_gpu_scope, "arrived_read_at_gpu_scope",
     "the scope reaches the payload's writer", "small"},
    {Mutant::abort_at_gpu_scope, "abort_at_gpu_scope", "an abort reaches every rank",
     "caller_abort"},
    {Mutant::no_fence_after_pull, "no_fence_after_pull",
     "proxy fence between stored scales and their bulk loads", "small"},
    {Mutant::no_fence_before_pool_reuse, "no_fence_before_pool_reuse",
     "proxy fence between bulk loads of a pool slot and its next stores", "tight_rings"},
    {Mutant::no_fence_after_l1, "no_fence_after_l1",
     "proxy fence between the epilogue's stores and their bulk loads", "small"},
    {Mutant::no_fence_before_act_reuse, "no_fence_before_act_reuse",
     "proxy fence between bulk loads of an act slot and its next stores", "tight_rings"},
    {Mutant::no_fence_before_sum, "no_fence_before_sum",
     "proxy fence between stored contributions and their bulk loads", "small"},
    {Mutant::pull_copy_not_awaited, "pull_copy_not_awaited",
     "a bulk copy is complete before it is published", "small"},
    {Mutant::one_parity, "one_parity", "counts and lists exist once per parity", "two_ctas"},
    {Mutant::zero_counts_unpublished, "zero_counts_unpublished",
     "zero counts are published, to every rank, in every call", "idle_ranks"},
    {Mutant::counts_before_plain_lists, "counts_before_plain_lists",
     "counts may go out before the lists only because entries validate themselves", "small"},
    {Mutant::arrived_in_tiles, "arrived_in_tiles", "arrived counts granules, not tiles",
     "mixed_tiles"},
    {Mutant::not_cleared, "not_cleared", "a call clears the other parity", "replay"},
    {Mutant::clears_own_parity, "clears_own_parity",
     "a call clears the parity that it does not use", "small"},
    {Mutant::epoch_not_advanced, "epoch_not_advanced", "the last CTA out advances the epoch",
     "replay"},
    {Mutant::epoch_is_launch_id, "epoch_is_launch_id",
     "nothing is compared with a value that a replay repeats", "replay"},
    {Mutant::inputs_staged_early, "inputs_staged_early",
     "inputs are overwritten only after the rank's own call", "small"},
    {Mutant::pool_slot_not_awaited, "pool_slot_not_awaited",
     "a pull waits for the L1 that frees its slot", "tight_rings"},
    {Mutant::act_slot_not_awaited, "act_slot_not_awaited",
     "L1 waits for the L2 that frees its slot: claimed is not done", "warps_tight"},
    {Mutant::lag_of_act_slots, "lag_of_act_slots", "the lag is smaller than the act ring",
     "tight_rings_one_cta"},
    {Mutant::rows_ready_deferred, "rows_ready_deferred",
     "a courier publishes all it holds before it waits for a slot", "tight_rings_one_cta"},
    {Mutant::l1_done_deferred, "l1_done_deferred",
     "publishing an earlier ticket never depends on a later one", "tight_rings_one_cta"},
    {Mutant::tickets_out_of_order, "tickets_out_of_order", "an agent works its tickets in order",
     "warps_tight"},
    {Mutant::sum_with_pulls_unclaimed, "sum_with_pulls_unclaimed",
     "a courier sums only when no pull is left to claim", "small"},
    {Mutant::sum_without_arrived, "sum_without_arrived", "the sum waits for all contributions",
     "small"},
    {Mutant::first_out_leaves, "first_out_leaves", "the last CTA out ends the call", "two_ctas"},
    {Mutant::whole_grid_barrier, "whole_grid_barrier",
     "no CTA waits for one that may not be running", "held_slot"},
    {Mutant::duty_by_block_index, "duty_by_block_index", "nothing is assigned by block index",
     "one_slot"},
    {Mutant::one_agent_per_cta, "one_agent_per_cta",
     "courier and math of a CTA progress independently", "tight_rings_one_cta"},
    {Mutant::ranks_dealt_by_block_index, "ranks_dealt_by_block_index",
     "a CTA's virtual rank follows from its start number", "virtual_ranks"},
    {Mutant::fewer_ctas_than_ranks, "fewer_ctas_than_ranks",
     "virtual ranks need as many CTAs as ranks", "virtual_ranks"},
    {Mutant::no_reserve_for_other_layers, "no_reserve_for_other_layers",
     "Layers that run at the same time leave room for each other", "two_layers"},
    {Mutant::abort_not_sent, "abort_not_sent", "whoever gives up tells every rank", "caller_abort"},
    {Mutant::abort_not_checked, "abort_not_checked", "every wait looks at the abort word",
     "caller_abort"},
    {Mutant::barrier_wait_unbounded, "barrier_wait_unbounded", "waits inside a CTA are bounded too",
     "dead_rank_warps"},
    {Mutant::no_deadline, "no_deadline", "every wait ends", "dead_rank"},
    {Mutant::reset_keeps_abort, "reset_keeps_abort", "a reset starts a new generation",
     "dead_rank"},
};
constexpr MutantInfo kSpare[] = {
    {Mutant::count_alone_unreleased, "count_alone_unreleased",
     "a row is pulled after its entry, which releases the staged input too", "small"},
    {Mutant::entry_alone_unreleased, "entry_alone_unreleased",
     "an entry is read after its source's counts, which release the staged input too", "small"},
    {Mutant::exit_relaxed, "exit_relaxed",
     "the last CTA out reads only what it has acquired itself; the kernel's end orders the rest",
     "two_ctas"},
    {Mutant::ranks_out_relaxed, "ranks_out_relaxed",
     "the last rank out reads nothing of the others; the kernel's end orders the rest",
     "virtual_ranks"},
};
static_assert(std::size(kMutants) + std::size(kSpare) + 1 ==
              static_cast<std::size_t>(Mutant::count_));

}  // namespace

std::span<const MutantInfo> mutants() { return kMutants; }

std::span<const MutantInfo> spare_rules() { return kSpare; }

const char* name(Mutant mutant) {
  for (const std::span<const MutantInfo> all : {mutants(), spare_rules()}) {
    for (const MutantInfo& m : all) {
      if (mutant == m.mutant) return m.name;
    }
  }
  return "none";
}

std::optional<Mutant> find_mutant(std::string_view name) {
  if (name == "none") return Mutant::none;
  for (const std::span<const MutantInfo> all : {mutants(), spare_rules()}) {
    for (const MutantInfo& m : all) {
      if (name == m.name) return m.mutant;
    }
  }
  return std::nullopt;
}

}  // namespace megamoe::sim
