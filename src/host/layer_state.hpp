#pragma once

#include <atomic>
#include <string>

#include "cpu/host_env.hpp"
#include "cpu/launch.hpp"
#include "host/aligned_buffer.hpp"
#include "megamoe/megamoe.hpp"
#include "protocol/memory.hpp"

namespace megamoe {

/// What a Layer keeps between calls.
struct LayerState {
  Problem problem;
  int rank = 0;
  bool one_launch = false;
  AlignedBuffer local;
  protocol::Memory memory;
  LocalHeader* launch_header = nullptr;  ///< of the launch's first rank: holds the epoch
  protocol::FaultRecord record;
  std::atomic<bool> in_flight = false;
  SymmetricMemory* provider = nullptr;
  std::string last_config;
  std::int64_t rows_received = 0;
  std::uint64_t delay_seed = 0;  ///< see LaunchOptions

  [[nodiscard]] protocol::u32 epoch() const { return protocol::tag_of(launch_header->start); }
  [[nodiscard]] protocol::u32 generation() const { return memory.local_header()->generation; }
};

/// Access to a Layer's state for the Group and for tests.
struct LayerAccess {
  static LayerState& state(Layer& layer) { return *layer.state_; }
};

/// Throws Error if `call` cannot run on this Layer. Nothing has been changed by then.
void check_call(const LayerState& state, const RankCall& call, const ForwardOptions& options);

/// The configuration that `options` asks for, or the choice for this rank's tokens. Throws Error if
/// invalid.
KernelConfig config_for_call(const LayerState& state, int num_tokens,
                             const ForwardOptions& options);

/// CTAs per rank that `options` asks for.
int ctas_for_call(const LayerState& state, const ForwardOptions& options);

/// The CPU backend's launch of one rank.
cpu::RankLaunch make_rank_launch(LayerState& state, const RankCall& call,
                                 const ForwardOptions& options);

/// Throws the fault of the call with epoch `epoch` if it did not finish; otherwise notes what it
/// did.
void finish_call(LayerState& state, protocol::u32 epoch);

/// Throws Error if a fault of an earlier call has not been reset.
void throw_if_faulted(const LayerState& state);

/// What ended a call, in words: from this rank's fault record, else from its abort word.
std::string fault_text(const LayerState& state);

/// All words as after creation, generation one higher.
void reset_words(LayerState& state);

}  // namespace megamoe
