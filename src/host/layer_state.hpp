#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "host/backend.hpp"
#include "host/rank_space.hpp"
#include "megamoe/megamoe.hpp"
#include "protocol/memory.hpp"
#include "roles/trace_events.hpp"

namespace megamoe {

/// What a Layer keeps between calls.
struct LayerState {
  Problem problem;
  int rank = 0;
  bool one_launch = false;
  Backend* backend = nullptr;
  SymmetricMemory* provider = nullptr;
  std::unique_ptr<RankSpace> space;
  protocol::Memory memory;               ///< addresses in space and in the provider's regions
  LocalHeader* launch_header = nullptr;  ///< of the launch's first rank: holds the epoch
  protocol::u32 generation = 0;          ///< as in the local header
  std::atomic<protocol::u32> aborted_generation = 0;  ///< the last in which abort() was called
  std::atomic<bool> in_flight = false;                ///< while forward has not returned
  std::optional<KernelConfig> last_config;
  /// The least deadline of the first call on a GPU after creation or reset, unless a call says.
  std::chrono::nanoseconds first_call_deadline = std::chrono::seconds(60);
  std::optional<int> default_reserve;  ///< SMs that the environment wants free
  bool poison = false;                 ///< MEGAMOE_POISON: spoil buffers after each call
  std::uint64_t delay_seed = 0;        ///< see cpu::LaunchOptions
  int thread_limit = 0;                ///< see cpu::LaunchOptions
  /// Where calls on a GPU write timestamps, for the tools; without events: nowhere. As a call
  /// reads it: [CTAs of the rank][lists][capacity].
  TraceBuffer trace = {};

  [[nodiscard]] protocol::u32 epoch() const {
    return protocol::tag_of(space->load(&launch_header->start));
  }
};

/// Access to a Layer's state for the Group and for tests.
struct LayerAccess {
  /// Throws Error once the Group has been destroyed.
  static LayerState& state(const Layer& layer);
};

/// The input region of a Layer, as calls address it.
InputViews input_views(const LayerState& state);

/// Runs the calls of these layers together, after all checks. Throws Error before anything has
/// changed, or the fault of a call that has ended by then. recv_stats of the options belongs to the
/// first rank, the others' follow it. Snapshots: one per layer, for the dispatch-only mode, whose
/// calls have neither y nor weights.
void run_calls(std::span<LayerState* const> layers, std::span<const RankCall> calls,
               const ForwardOptions& options, std::span<const Stream> streams,
               std::span<const DispatchSnapshot> snapshots = {});

/// Throws Error if `call` cannot run on this Layer. Nothing has been changed by then.
void check_call(const LayerState& state, const RankCall& call, const ForwardOptions& options);
/// The same for a call that only dispatches.
void check_dispatch(const LayerState& state, const RankCall& call, const ForwardOptions& options);

/// Throws Error unless it is positive.
void check_deadline(const char* name, std::chrono::nanoseconds deadline);

/// The configuration that `options` asks for, or the choice for this rank's tokens. Throws Error if
/// invalid.
KernelConfig config_for_call(const LayerState& state, int num_tokens,
                             const ForwardOptions& options);

/// Raises the abort words of all ranks in the name of this one: Phase::caller for abort(),
/// Phase::none for a call that could not run.
void raise_abort(LayerState& state, protocol::Phase phase);

/// Throws Error if a fault of an earlier call has not been reset.
void throw_if_faulted(const LayerState& state);

/// What ended a call, in words: from this rank's fault record, else from its abort word.
std::string fault_text(const LayerState& state);

/// True once this rank's record of the current generation is complete.
bool has_record(const LayerState& state);

/// Buffers whose bytes no later call may read before they are written: what MEGAMOE_POISON fills.
struct Spoilable {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
std::array<Spoilable, 2> spoilable(const LayerState& state);
inline constexpr int kPoison = 0xFF;  ///< NaN in e4m3, BF16 and FP32

/// All words as after creation, generation one higher.
void reset_words(LayerState& state);

}  // namespace megamoe
