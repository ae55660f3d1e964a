#include "sim/mutant.hpp"

#include <algorithm>
#include <vector>

namespace megamoe::sim {
namespace {

constexpr MutantInfo kMutants[] = {
    {Mutant::staged_input_unreleased, "staged_input_unreleased",
     "counts and list entries release the staged input", "small", "race on x@"},
    {Mutant::staged_input_unacquired, "staged_input_unacquired",
     "who reads counts and entries acquires the source's input", "small", "race on x@"},
    {Mutant::staged_input_gpu_scope, "staged_input_gpu_scope",
     "what other ranks read is published at sys scope", "small", "nobody can go on&polls count@"},
    {Mutant::counted_relaxed, "counted_relaxed",
     "a route chunk releases its counts; the last one acquires all", "route_chunks",
     "wrong data&in combine@|nobody can go on&polls list@"},
    {Mutant::rows_ready_unreleased, "rows_ready_unreleased", "a pull releases its rows", "small",
     "race on pool@"},
    {Mutant::rows_ready_unacquired, "rows_ready_unacquired", "L1 acquires the rows", "small",
     "race on pool@"},
    {Mutant::rows_ready_cta_scope, "rows_ready_cta_scope", "rows are published to the whole GPU",
     "two_ctas", "nobody can go on&polls rows_ready@|race on pool@"},
    {Mutant::l1_done_unreleased, "l1_done_unreleased", "L1 releases the act slot", "two_ctas",
     "race on act@|race on pool_scales@"},
    {Mutant::l1_done_unacquired_by_l2, "l1_done_unacquired_by_l2", "L2 acquires the act slot",
     "two_ctas", "race on act@"},
    {Mutant::l1_done_unacquired_by_pull, "l1_done_unacquired_by_pull",
     "a pull acquires L1's reads of its pool slot", "tight_rings", "race on pool_scales@"},
    {Mutant::l2_done_unreleased, "l2_done_unreleased", "L2 releases its reads of the act slot",
     "tight_rings", "race on act@&overwrites what is read"},
    {Mutant::l2_done_unacquired, "l2_done_unacquired", "L1 acquires L2's reads of its act slot",
     "tight_rings", "race on act@&overwrites what is read"},
    {Mutant::arrived_unreleased, "arrived_unreleased", "L2 releases its contributions", "small",
     "race on combine@"},
    {Mutant::arrived_unacquired, "arrived_unacquired", "the sum acquires the contributions",
     "small", "race on combine@"},
    {Mutant::arrived_added_at_gpu_scope, "arrived_added_at_gpu_scope",
     "the scope is that of the payload's last reader", "small", "nobody can go on&polls arrived@"},
    {Mutant::arrived_read_at_gpu_scope, "arrived_read_at_gpu_scope",
     "the scope reaches the payload's writer", "small", "nobody can go on&polls arrived@"},
    {Mutant::abort_at_gpu_scope, "abort_at_gpu_scope", "an abort reaches every rank",
     "caller_abort", "was told of a wrong cause"},
    {Mutant::no_fence_after_pull, "no_fence_after_pull",
     "proxy fence between stored scales and their bulk loads", "small", "no proxy fence on pool"},
    {Mutant::no_fence_before_pool_reuse, "no_fence_before_pool_reuse",
     "proxy fence between bulk loads of a pool slot and its next stores", "tight_rings",
     "no proxy fence on pool"},
    {Mutant::no_fence_after_l1, "no_fence_after_l1",
     "proxy fence between the epilogue's stores and their bulk loads", "small",
     "no proxy fence on act@&reads what was written"},
    {Mutant::no_fence_before_act_reuse, "no_fence_before_act_reuse",
     "proxy fence between bulk loads of an act slot and its next stores", "tight_rings",
     "no proxy fence on act@&overwrites what is read"},
    {Mutant::no_fence_before_sum, "no_fence_before_sum",
     "proxy fence between stored contributions and their bulk loads", "small",
     "no proxy fence on combine@"},
    {Mutant::pull_copy_not_awaited, "pull_copy_not_awaited",
     "a bulk copy is complete before it is published", "small", "race on pool@"},
    {Mutant::one_parity, "one_parity", "counts and lists exist once per parity", "two_ctas",
     "gave up waiting for counts"},
    {Mutant::zero_counts_unpublished, "zero_counts_unpublished",
     "zero counts are published, to every rank, in every call", "idle_ranks",
     "gave up waiting for counts"},
    {Mutant::counts_before_plain_lists, "counts_before_plain_lists",
     "counts may go out before the lists only because entries validate themselves", "small",
     "wrong data&the sum|race on combine@"},
    {Mutant::arrived_in_tiles, "arrived_in_tiles", "arrived counts granules, not tiles",
     "mixed_tiles",
     "wrong data&the sum|race on combine@|gave up waiting for arrived|nobody can go on&polls "
     "arrived@"},
    {Mutant::not_cleared, "not_cleared", "a call clears the other parity", "replay",
     "nobody can go on&polls count@"},
    {Mutant::clears_own_parity, "clears_own_parity",
     "a call clears the parity that it does not use", "small",
     "race on|wrong data&L1|nobody can go on&polls rows_ready@"},
    {Mutant::epoch_not_advanced, "epoch_not_advanced", "the last CTA out advances the epoch",
     "replay", "left the epoch at 1, expected 2"},
    {Mutant::epoch_is_launch_id, "epoch_is_launch_id",
     "nothing is compared with a value that a replay repeats", "replay",
     "left the epoch at|wrong data|race on x@"},
    {Mutant::inputs_staged_early, "inputs_staged_early",
     "inputs are overwritten only after the rank's own call", "small", "race on topk@|race on x@"},
    {Mutant::pool_slot_not_awaited, "pool_slot_not_awaited",
     "a pull waits for the L1 that frees its slot", "tight_rings",
     "race on pool|nobody can go on&polls rows_ready@"},
    {Mutant::act_slot_not_awaited, "act_slot_not_awaited",
     "L1 waits for the L2 that frees its slot: claimed is not done", "warps_tight",
     "race on act@&overwrites what is read|no proxy fence on act@&overwrites what is read"},
    {Mutant::peek_waits, "peek_waits",
     "a scheduler waits for a tile only when the one before is loaded", "warps_tight",
     "nobody can go on&scheduler polls"},
    {Mutant::peek_without_act_slot, "peek_without_act_slot",
     "a tile that was seen to be ready has an act slot too", "warps_tight",
     "race on act@&overwrites what is read|no proxy fence on act@&overwrites what is read"},
    {Mutant::metadata_in_pool_slots, "metadata_in_pool_slots",
     "a row's metadata lives until its L2: pool and act slots of them", "tight_rings",
     "race on row_meta@|in row_meta@"},
    {Mutant::stage_not_awaited, "stage_not_awaited", "weights run ahead into free stages only",
     "warps_tight", "race on stage@|in stage@"},
    {Mutant::stage_released_early, "stage_released_early", "math frees a stage when it has used it",
     "warps_tight", "race on stage@&overwrites what is read"},
    {Mutant::done_slot_not_awaited, "done_slot_not_awaited",
     "math waits until the publisher has read a slot of the done ring", "warps_tight",
     "race on done_slot@|in done_slot@"},
    {Mutant::pushed_before_stores, "pushed_before_stores",
     "math tells the publisher after its stores", "warps_tight",
     "race on act@|no proxy fence on act@"},
    {Mutant::lag_of_act_slots, "lag_of_act_slots", "the lag is smaller than the act ring",
     "tight_rings_one_cta", "nobody can go on&polls l2_done@"},
    {Mutant::group_beyond_pool, "group_beyond_pool", "a group of blocks is at most the pool slots",
     "groups", "nobody can go on&polls rows_ready@"},
    {Mutant::group_beyond_act, "group_beyond_act",
     "lag and group together are at most the act slots", "groups",
     "nobody can go on&polls l2_done@"},
    {Mutant::rows_ready_deferred, "rows_ready_deferred",
     "a courier publishes all it holds before it waits for a slot", "tight_rings_one_cta",
     "nobody can go on&polls rows_ready@"},
    {Mutant::l1_done_deferred, "l1_done_deferred",
     "publishing an earlier ticket never depends on a later one", "tight_rings_one_cta",
     "nobody can go on&polls l1_done@"},
    {Mutant::tickets_out_of_order, "tickets_out_of_order", "an agent works its tickets in order",
     "warps_tight", "nobody can go on&scheduler polls l1_done@"},
    {Mutant::sum_with_pulls_unclaimed, "sum_with_pulls_unclaimed",
     "a courier sums only when no pull is left to claim", "small",
     "nobody can go on&polls arrived@&polls rows_ready@"},
    {Mutant::sum_without_arrived, "sum_without_arrived", "the sum waits for all contributions",
     "small", "wrong data&the sum|race on combine@"},
    {Mutant::first_out_leaves, "first_out_leaves", "the last CTA out ends the call", "two_ctas",
     "wrong data&pulling|left the epoch at|race on|nobody can go on&polls count@"},
    {Mutant::whole_grid_barrier, "whole_grid_barrier",
     "no CTA waits for one that may not be running", "held_slot",
     "nobody can go on&polls start@&has no slot"},
    {Mutant::duty_by_block_index, "duty_by_block_index", "nothing is assigned by block index",
     "one_slot", "nobody can go on&polls count@&has no slot"},
    {Mutant::one_agent_per_cta, "one_agent_per_cta",
     "courier and math of a CTA progress independently", "tight_rings_one_cta",
     "nobody can go on&polls l1_done@"},
    {Mutant::ranks_dealt_by_block_index, "ranks_dealt_by_block_index",
     "a CTA's virtual rank follows from its start number", "virtual_ranks",
     "nobody can go on&polls count@&has no slot"},
    {Mutant::fewer_ctas_than_ranks, "fewer_ctas_than_ranks",
     "virtual ranks need as many CTAs as ranks", "virtual_ranks", "nobody can go on&polls count@"},
    {Mutant::no_reserve_for_other_layers, "no_reserve_for_other_layers",
     "Layers that run at the same time leave room for each other", "two_layers",
     "nobody can go on&polls count@&has no slot"},
    {Mutant::abort_not_sent, "abort_not_sent", "whoever gives up tells every rank", "caller_abort",
     "was told of a wrong cause"},
    {Mutant::abort_not_checked, "abort_not_checked", "every wait looks at the abort word",
     "caller_abort", "was told of a wrong cause"},
    {Mutant::consumers_not_told, "consumers_not_told",
     "a scheduler that gives up tells math, and math the publisher", "stuck_rank_warps",
     "took longer than its deadline"},
    {Mutant::barrier_wait_unbounded, "barrier_wait_unbounded", "waits inside a CTA are bounded too",
     "stuck_rank_warps", "nobody can go on&math polls barrier@"},
    {Mutant::end_not_loaded, "end_not_loaded",
     "a wait inside a CTA that ends in vain is a fault: math for the scheduler", "dead_rank_warps",
     "gave up waiting for full stage"},
    {Mutant::end_not_pushed, "end_not_pushed",
     "a wait inside a CTA that ends in vain is a fault: the publisher for math", "dead_rank_warps",
     "gave up waiting for finished tile"},
    {Mutant::no_deadline, "no_deadline", "every wait ends", "dead_rank",
     "nobody can go on&polls count@"},
    {Mutant::reset_keeps_abort, "reset_keeps_abort", "a reset starts a new generation", "dead_rank",
     "gave up waiting for counts"},
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

namespace {

/// The parts of `text` between marks.
std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; (end = text.find(mark)) != std::string_view::npos;
       text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

}  // namespace

bool is_expected(std::string_view expected, std::string_view failure) {
  const std::vector<std::string_view> ways = split(expected, '|');
  return std::any_of(ways.begin(), ways.end(), [&](std::string_view way) {
    const std::vector<std::string_view> words = split(way, '&');
    return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
      return !word.empty() && failure.find(word) != std::string_view::npos;
    });
  });
}

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
