#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "sim/view.hpp"

namespace megamoe::sim {

/// One deliberate fault of the protocol. Each must turn its scenario red; `none` must be green in
/// all of them. The protocol's headers contain none of this: see mutation.hpp and the test agents.
enum class Mutant : unsigned char {
  none,
  // Orders and scopes.
  staged_input_unreleased,
  staged_input_unacquired,
  staged_input_gpu_scope,
  counted_relaxed,
  rows_ready_unreleased,
  rows_ready_unacquired,
  rows_ready_cta_scope,
  l1_done_unreleased,
  l1_done_unacquired_by_l2,
  l1_done_unacquired_by_pull,
  l2_done_unreleased,
  l2_done_unacquired,
  arrived_unreleased,
  arrived_unacquired,
  arrived_added_at_gpu_scope,
  arrived_read_at_gpu_scope,
  abort_at_gpu_scope,
  // Proxies and bulk copies.
  no_fence_after_pull,
  no_fence_before_pool_reuse,
  no_fence_after_l1,
  no_fence_before_act_reuse,
  no_fence_before_sum,
  pull_copy_not_awaited,
  // Words across calls.
  one_parity,
  zero_counts_unpublished,
  counts_before_plain_lists,
  arrived_in_tiles,
  not_cleared,
  clears_own_parity,
  epoch_not_advanced,
  epoch_is_launch_id,
  inputs_staged_early,
  // Rings and tickets.
  pool_slot_not_awaited,
  act_slot_not_awaited,
  peek_waits,
  peek_without_act_slot,
  metadata_in_pool_slots,
  // Rings inside a CTA.
  stage_not_awaited,
  stage_released_early,
  done_slot_not_awaited,
  pushed_before_stores,
  // Tickets.
  lag_of_act_slots,
  group_beyond_pool,
  group_beyond_act,
  rows_ready_deferred,
  l1_done_deferred,
  tickets_out_of_order,
  sum_with_pulls_unclaimed,
  sum_without_arrived,
  // Who does what.
  first_out_leaves,
  whole_grid_barrier,
  duty_by_block_index,
  one_agent_per_cta,
  ranks_dealt_by_block_index,
  fewer_ctas_than_ranks,
  no_reserve_for_other_layers,
  // Faults.
  abort_not_sent,
  abort_not_checked,
  consumers_not_told,
  barrier_wait_unbounded,
  end_not_loaded,
  end_not_pushed,
  no_deadline,
  reset_keeps_abort,
  // Stronger than the model needs; see spare_rules().
  count_alone_unreleased,
  entry_alone_unreleased,
  exit_relaxed,
  ranks_out_relaxed,
  count_,
};

struct MutantInfo {
  Mutant mutant;
  const char* name;
  const char* rule;      ///< what it breaks, in the words of PROTOCOL.md
  const char* scenario;  ///< that turns red
  /// What the failure must say, in words of its text: `a&b|c` is a and b, or c. A failure of
  /// another kind does not show that the rule is watched.
  const char* expected = "";
};
/// True if a failure's text says what is expected.
bool is_expected(std::string_view expected, std::string_view failure);
/// Those that must turn their scenario red.
std::span<const MutantInfo> mutants();
/// Those that must stay green: the protocol keeps a rule that nothing in it depends on. `rule` says
/// what makes it spare. One that turns red means that something has come to depend on it.
std::span<const MutantInfo> spare_rules();
/// "none" for the true protocol.
const char* name(Mutant mutant);
std::optional<Mutant> find_mutant(std::string_view name);

}  // namespace megamoe::sim
