#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "config/kernel_config.hpp"
#include "host/rank_space.hpp"
#include "megamoe/megamoe.hpp"
#include "protocol/snapshot.hpp"

namespace megamoe {

/// One rank's part of a call, checked against its Problem.
struct PreparedCall {
  LayerState* layer = nullptr;
  RankCall call;
  KernelConfig config;
  std::int64_t* recv_stats = nullptr;  ///< [experts per rank] or null
  Stream stream = nullptr;
  DispatchSnapshot snapshot = {};  ///< given: only the dispatch runs, and no weights are needed
};

/// What a caller stages, checked against the Problem: [num_tokens] rows, ids int64 or int32.
struct StageCall {
  const std::uint16_t* hidden_states = nullptr;
  const void* topk_idx = nullptr;
  bool wide_ids = true;
  const float* topk_weights = nullptr;
  int num_tokens = 0;
  float routed_scaling = 1.0F;
};

/// Where the local ranks of a Group run.
class Backend {
 public:
  virtual ~Backend() = default;

  /// The space of the local rank with this index.
  virtual std::unique_ptr<RankSpace> make_space(int local_rank, std::size_t local_bytes) = 0;
  /// Puts the input region of a new rank in order; all else there is zero.
  virtual void prepare_inputs(LayerState& layer) = 0;
  /// Throws Error if this backend cannot run the call. Nothing has been changed by then.
  virtual void check(const PreparedCall& call, const ForwardOptions& options) const = 0;
  /// Starts the calls, of all ranks of a launch together. Throws the fault of a call that has ended
  /// with one by its return.
  virtual void forward(std::span<const PreparedCall> calls, const ForwardOptions& options) = 0;
  virtual void stage(LayerState& layer, const StageCall& call, Stream stream) = 0;
  /// Puts in order what reset_words has zeroed and calls need.
  virtual void after_reset(LayerState& layer) = 0;
  /// See Layer::set_deadlines.
  virtual void set_deadlines(LayerState& layer, std::chrono::nanoseconds deadline,
                             std::chrono::nanoseconds first_deadline) = 0;
  /// The SMs of local rank `local_rank`'s device; 0: it has none.
  [[nodiscard]] virtual int num_sms(int local_rank) const = 0;
  /// Whether what is started on this stream now becomes part of a graph.
  [[nodiscard]] virtual bool is_capturing(Stream stream) const = 0;
  /// Waits for the rank's last forward or stage to end.
  virtual void synchronize(LayerState& layer) = 0;
};

std::unique_ptr<Backend> make_cpu_backend();

/// The backend for memory on the provider's devices. Throws Error(unsupported) for a Problem that
/// it cannot run, and in a build without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const Problem& problem, const SymmetricMemory& memory);

}  // namespace megamoe
