#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megamoe/error.hpp"
#include "megamoe/export.h"
#include "megamoe/problem.hpp"
#include "megamoe/symmetric_memory.hpp"
#include "megamoe/weights.hpp"

struct CUstream_st;

namespace megamoe {

/// A cudaStream_t of the rank's device; ignored by host memory, where calls are synchronous.
using Stream = CUstream_st*;

/// Library version, "major.minor.patch".
MEGAMOE_API const char* version();

struct KernelConfig;  // src/config/kernel_config.hpp: for tests and tuning

/// What one call may choose. Nothing here changes a bit of y, except `fast_math`.
struct ForwardOptions {
  /// Tokens that the whole group brings, for the choice of tiles; default: own tokens x ranks.
  std::optional<long> global_num_tokens;
  /// Most SMs (CTAs; on the CPU, thread groups per rank) to use, up to 1024; 0: the default.
  int num_sms = 0;
  /// SMs left free for other kernels. Default: what MEGAMOE_RESERVED_SMS says, else
  /// SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS, as read when the Group was made; else 0 on Hopper
  /// and 2 on later GPUs. It sizes no memory: it may change with every call.
  std::optional<int> reserved_sms;
  /// Longest time that any wait of the call may last; positive, at most kMaxDeadline. A captured
  /// call replays with the deadlines of the last call that the host made, or of
  /// Layer::set_deadlines: they lie in device memory.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  /// The same for the first call after creation or reset, since other processes may still be
  /// starting. Default: on a GPU the longer of `deadline` and 60 s, on the CPU `deadline`.
  std::optional<std::chrono::nanoseconds> first_deadline;
  /// Faster exponential and reciprocal in the activation.
  bool fast_math = false;
  /// Adds, per local routed expert, the rows received in this call; [experts_per_rank] or null;
  /// [local ranks][experts_per_rank] for Group::forward. On GPUs, memory that they can all write.
  std::int64_t* recv_stats = nullptr;
  /// Overrides the choice of configuration.
  const KernelConfig* config = nullptr;
};

/// The input region of one rank, in symmetric memory: what a caller stages before a call.
struct InputViews {
  std::byte* x = nullptr;  ///< [capacity, hidden] e4m3, or BF16
  /// float [capacity, hidden / 128]; mxfp8: UE8M0 [capacity, hidden / 32]; bf16: null
  std::byte* x_scales = nullptr;
  std::int64_t* topk_idx = nullptr;  ///< [capacity, top_k], -1 = no expert
  float* topk_weights = nullptr;     ///< [capacity, top_k]
};

/// Bytes that a Layer holds.
struct MemoryReport {
  std::size_t symmetric_bytes = 0;
  std::size_t local_bytes = 0;
  std::string map;  ///< one line per buffer: offset, bytes, name, shape
};

/// What the last finished call of a Layer did.
struct CallReport {
  std::uint32_t epoch = 0;         ///< calls finished since creation or reset
  std::string config;              ///< the configuration that ran, readable
  std::int64_t rows_received = 0;  ///< token-expert pairs computed here, shared experts excluded
  /// The first expert id that was neither -1 nor an expert, if any: it counted as -1.
  struct BadId {
    int token, slot;
    std::int64_t value;
  };
  std::optional<BadId> bad_id;
};

class Group;
struct LayerState;

/// One local rank of a Group.
class Layer {
 public:
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  MEGAMOE_API ~Layer();

  [[nodiscard]] MEGAMOE_API int rank() const;
  [[nodiscard]] MEGAMOE_API const Problem& problem() const;
  [[nodiscard]] MEGAMOE_API InputViews inputs() const;

  /// Quantises `num_tokens` rows of BF16 hidden states [num_tokens, hidden] into the input region,
  /// with their ids (int32 or int64) and weights (times routed_scaling); the rest of the capacity
  /// gets id -1. On a GPU all pointers are of device memory, and the work is done in stream order.
  MEGAMOE_API void stage(const std::uint16_t* hidden_states, std::span<const std::int64_t> topk_idx,
                         std::span<const float> topk_weights, int num_tokens,
                         float routed_scaling = 1.0F, Stream stream = nullptr);
  MEGAMOE_API void stage(const std::uint16_t* hidden_states, std::span<const std::int32_t> topk_idx,
                         std::span<const float> topk_weights, int num_tokens,
                         float routed_scaling = 1.0F, Stream stream = nullptr);

  /// Runs this rank's part of one call: y BF16 [num_tokens, hidden]. Every rank must call. `shared`
  /// holds the shared experts when the Problem has any. On the CPU it returns when the call has
  /// ended, and a fault of the call is thrown here and again by check(). On a GPU it only starts
  /// the call, in stream order, and may be captured into a graph; faults are thrown by check(), or
  /// here by a later call.
  MEGAMOE_API void forward(std::uint16_t* y, int num_tokens, const ExpertTensors& weights,
                           const ExpertTensors* shared = nullptr,
                           const ForwardOptions& options = {}, Stream stream = nullptr);

  /// Throws the recorded fault, if any; otherwise says what the last finished call did. It waits
  /// for nothing: on a GPU synchronise the stream first, or use synchronize().
  MEGAMOE_API CallReport check() const;
  /// Waits until the last call and staging that this Layer was given are over.
  MEGAMOE_API void synchronize();
  /// Sets the deadlines of captured calls, from their next replay on: in the first call after
  /// creation or reset, and in all others. Calls that the host makes bring their own. For GPUs; on
  /// the CPU nothing is captured. Throws Error(invalid_argument) unless both are positive and at
  /// most kMaxDeadline.
  MEGAMOE_API void set_deadlines(std::chrono::nanoseconds deadline,
                                 std::chrono::nanoseconds first_deadline);
  /// Releases every peer that waits for this rank.
  MEGAMOE_API void abort();
  [[nodiscard]] MEGAMOE_API MemoryReport memory_report() const;

 private:
  friend class Group;
  friend struct LayerAccess;
  explicit Layer(std::unique_ptr<LayerState> state);
  std::unique_ptr<LayerState> state_;
};

/// What one local rank brings to Group::forward.
struct RankCall {
  std::uint16_t* y = nullptr;
  int num_tokens = 0;
  const ExpertTensors* weights = nullptr;
  const ExpertTensors* shared = nullptr;
};

/// A Problem on a set of ranks, with one Layer for each rank that lives in this process.
class Group {
 public:
  /// Collective. All ranks compare problem, layout and library version, and whether each of them
  /// can run it; they refuse together, with the same Error, before anything is allocated.
  MEGAMOE_API Group(const Problem& problem, std::unique_ptr<SymmetricMemory> memory);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  MEGAMOE_API ~Group();

  [[nodiscard]] MEGAMOE_API const Problem& problem() const;
  [[nodiscard]] MEGAMOE_API int num_local_ranks() const;
  [[nodiscard]] MEGAMOE_API Layer& layer(int local_rank);

  /// One call on all local ranks together, each on its own stream; virtual ranks have one stream.
  /// No streams: the default stream of each device. Faults: as for Layer::forward.
  MEGAMOE_API void forward(std::span<const RankCall> calls, const ForwardOptions& options = {},
                           std::span<const Stream> streams = {});

  /// Layer::synchronize for all local ranks.
  MEGAMOE_API void synchronize();

  /// Makes the group usable again after a fault: all words zero, epoch 1. Collective; no call may
  /// be starting. A group that has lost a rank cannot be reset: create it anew.
  MEGAMOE_API void reset();

  /// Gives all memory back, once this process's calls have ended; not collective, and safe in any
  /// order among processes, after a fault, and twice. The Layers then refuse everything.
  MEGAMOE_API void destroy();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megamoe
