// Calls on GPUs: one launch of the fused kernel for each rank, or one for all virtual ranks.
#include <algorithm>
#include <vector>

#include "host/cuda/cuda_rank.hpp"
#include "host/cuda/launch_limits.hpp"
#include "host/cuda/profile_range.hpp"
#include "host/cuda/rank_table.hpp"
#include "host/environment.hpp"
#include "host/layer_state.hpp"

namespace megamoe {
namespace {

using cuda::CudaRank;
using cuda::DeviceGuard;
using cuda::RankTable;
using protocol::u32;

CudaRank& rank_of(const LayerState& s) { return static_cast<CudaRank&>(*s.space); }

/// A call that only dispatches has no weights.
WeightPointers pointers_of(const ExpertTensors* w) {
  if (w == nullptr) return {};
  return {w->w1, w->w2, reinterpret_cast<const float*>(w->w1_scales),
          reinterpret_cast<const float*>(w->w2_scales)};
}

const ExpertTensors* shared_of(const PreparedCall& p) {
  return p.layer->problem.shared_experts > 0 ? p.call.shared : nullptr;
}

RankParams rank_params(const PreparedCall& p) {
  const LayerState& s = *p.layer;
  const ExpertTensors* shared = shared_of(p);
  return {.geometry = protocol::make_geometry(s.problem, p.config, s.rank,
                                              static_cast<u32>(list_entries(s.problem))),
          .memory = s.memory,
          .routed = pointers_of(p.call.weights),
          .shared = pointers_of(shared == nullptr ? p.call.weights : shared),
          .y = p.call.y,
          .recv_stats = p.recv_stats,
          .record = rank_of(s).device_record(),
          .snapshot = p.snapshot,
          .trace = s.trace,
          .num_tokens = static_cast<u32>(p.call.num_tokens),
          .clamp = s.problem.activation.clamp};
}

const RankMaps& rank_maps(const PreparedCall& p) {
  static const RankMaps kNone = {};
  if (p.call.weights == nullptr) return kNone;
  const LayerState& s = *p.layer;
  return rank_of(s).maps.get(s.problem, s.memory, *p.call.weights, shared_of(p),
                             p.config.block_rows);
}

void require_weights(CudaRank& rank, const ExpertTensors* w) {
  if (w == nullptr) return;
  rank.require_addressable("w1", w->w1);
  rank.require_addressable("w1_scales", w->w1_scales);
  rank.require_addressable("w2", w->w2);
  rank.require_addressable("w2_scales", w->w2_scales);
}

void require_aligned(const char* field, const void* pointer, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} = {} is not aligned to {} bytes", field, pointer, alignment));
  }
}

/// Loads every kernel on a device, so that no call does: loading waits for running kernels.
void load_kernels(int device) {
  const DeviceGuard guard(device);
  for (const FusedInstance& instance : fused_instances()) {
    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     instance.shared_bytes),
                instance.name);
    cuda::check(cudaFuncGetAttributes(&attributes, instance.kernel), instance.name);
  }
  cuda::check(load_stage_kernels(), "loading the staging kernels");
}

void launch_fused(const FusedInstance& instance, FusedParams& params, int grid,
                  cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(instance.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(instance.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* arguments[] = {&params};
  cuda::check(cudaLaunchKernelExC(&config, instance.kernel, arguments), instance.name);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const Problem& problem, const SymmetricMemory& memory)
      : devices_(memory.devices()), one_launch_(memory.one_launch()), ranks_(problem.ranks) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const bool seen = std::find(devices_.begin(), devices_.begin() + static_cast<long>(i),
                                  devices_[i]) != devices_.begin() + static_cast<long>(i);
      int sms = 0;
      cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, devices_[i]),
                  "counting SMs");
      num_sms_.push_back(sms / environment_ranks_per_gpu());
      if (seen) continue;
      cuda::check_problem(problem, devices_[i]);
      load_kernels(devices_[i]);
    }
  }

  std::unique_ptr<RankSpace> make_space(int local_rank, std::size_t local_bytes) override {
    const DeviceGuard guard(devices_[static_cast<std::size_t>(local_rank)]);
    auto rank =
        std::make_unique<CudaRank>(devices_[static_cast<std::size_t>(local_rank)], local_bytes);
    if (local_rank == 0) {
      table_ = std::make_unique<RankTable>(*rank,
                                           one_launch_ ? static_cast<std::size_t>(ranks_) - 1 : 0);
    }
    return rank;
  }

  void prepare_inputs(LayerState& s) override {
    const std::size_t slots =
        static_cast<std::size_t>(s.problem.max_tokens_per_rank) * s.problem.top_k;
    rank_of(s).fill(input_views(s).topk_idx, 0xFF, slots * sizeof(std::int64_t));  // -1
  }

  void check(const PreparedCall& p, const ForwardOptions& options) const override {
    CudaRank& rank = rank_of(*p.layer);
    cuda::instance_for(p);
    (void)grid_of(*p.layer, options);
    if (p.snapshot.x != nullptr) return;
    require_aligned("y", p.call.y, 16);
    const DeviceGuard guard(rank.device());
    rank.require_addressable("y", p.call.y);
    rank.require_addressable("recv_stats", options.recv_stats, CudaRank::Peers::allowed);
    if (!rank.maps.holds(*p.call.weights, shared_of(p), p.config.block_rows)) {
      require_weights(rank, p.call.weights);
      require_weights(rank, shared_of(p));
    }
  }

  void forward(std::span<const PreparedCall> calls, const ForwardOptions& options) override {
    const cuda::ProfileRange range("megamoe forward");
    if (one_launch_) return launch(calls, options);
    std::size_t started = 0;
    try {
      for (; started < calls.size(); ++started) launch(calls.subspan(started, 1), options);
    } catch (...) {
      // Those that have started would wait for this one.
      if (started > 0) raise_abort(*calls[started].layer, protocol::Phase::none);
      throw;
    }
  }

  void stage(LayerState& s, const StageCall& call, Stream stream) override {
    const cuda::ProfileRange range("megamoe stage");
    CudaRank& rank = rank_of(s);
    const DeviceGuard guard(rank.device());
    const InputViews in = input_views(s);
    require_aligned("hidden_states", call.hidden_states, 16);
    require_aligned("topk_idx", call.topk_idx, call.wide_ids ? 8 : 4);
    require_aligned("topk_weights", call.topk_weights, 4);
    rank.require_addressable("hidden_states", call.hidden_states);
    rank.require_addressable("topk_idx", call.topk_idx);
    rank.require_addressable("topk_weights", call.topk_weights);
    rank.most_staged = std::max(rank.most_staged, call.num_tokens);
    const StageParams params{.hidden_states = call.hidden_states,
                             .ids = call.topk_idx,
                             .weights = call.topk_weights,
                             .x = in.x,
                             .x_scales = reinterpret_cast<float*>(in.x_scales),
                             .topk_idx = in.topk_idx,
                             .topk_weights = in.topk_weights,
                             .words = rank.stage_words(),
                             .num_tokens = static_cast<u32>(call.num_tokens),
                             .hidden_granules = static_cast<u32>(s.problem.hidden / kGranule),
                             .top_k = static_cast<u32>(s.problem.top_k),
                             .wide_ids = call.wide_ids,
                             .routed_scaling = call.routed_scaling};
    cuda::check(launch_stage(params, static_cast<u32>(rank.most_staged),
                             static_cast<u32>(sms_of(rank)), stream),
                "launching the staging kernel");
    if (!cuda::is_capturing(stream)) rank.note_stream(stream);
  }

  void after_reset(LayerState& s) override {
    rank_of(s).restore_deadlines(s.memory.local_header(), s.generation);
  }
  void set_deadlines(LayerState& s, std::chrono::nanoseconds deadline,
                     std::chrono::nanoseconds first_deadline) override {
    rank_of(s).set_deadlines(s.memory.local_header(), s.generation,
                             {static_cast<std::uint64_t>(deadline.count()),
                              static_cast<std::uint64_t>(first_deadline.count())},
                             nullptr, true);
  }
  [[nodiscard]] int num_sms(int local_rank) const override {
    return num_sms_[static_cast<std::size_t>(local_rank)];
  }
  [[nodiscard]] bool is_capturing(Stream stream) const override {
    return cuda::is_capturing(stream);
  }

  void synchronize(LayerState& s) override { rank_of(s).synchronize(); }

 private:
  [[nodiscard]] int launch_ranks() const { return one_launch_ ? ranks_ : 1; }
  [[nodiscard]] int sms_of(const CudaRank& rank) const {
    const auto at = std::find(devices_.begin(), devices_.end(), rank.device()) - devices_.begin();
    return num_sms_[static_cast<std::size_t>(at)];
  }

  void launch(std::span<const PreparedCall> calls, const ForwardOptions& options) {
    const PreparedCall& first = calls.front();
    CudaRank& rank = rank_of(*first.layer);
    const DeviceGuard guard(rank.device());
    const bool capturing = cuda::is_capturing(first.stream);
    FusedParams params{.maps = rank_maps(first),
                       .rank = rank_params(first),
                       .other_maps = nullptr,
                       .other_ranks = nullptr,
                       .launch_ranks = static_cast<u32>(calls.size())};
    std::vector<RankMaps> maps;
    std::vector<RankParams> ranks;
    for (const PreparedCall& call : calls.subspan(1)) {
      maps.push_back(rank_maps(call));
      ranks.push_back(rank_params(call));
    }
    const RankTable::Place place = table_->place(maps, ranks, first.stream, capturing);
    params.other_maps = place.maps;
    params.other_ranks = place.ranks;
    for (const PreparedCall& call : calls) set_deadline(*call.layer, options, call, capturing);
    const int grid = grid_of(*first.layer, options);
    launch_fused(cuda::instance_for(first), params, grid, first.stream);
    for (const PreparedCall& call : calls) poison(*call.layer, first.stream);
    for (const PreparedCall& call : calls) {
      if (!capturing) rank_of(*call.layer).note_stream(first.stream);
    }
  }

  [[nodiscard]] int grid_of(const LayerState& s, const ForwardOptions& options) const {
    const CudaRank& rank = rank_of(s);
    return cuda::grid_for(options, s.default_reserve, arch_, sms_of(rank), launch_ranks());
  }

  /// Behind the call, in stream order; a captured call spoils on each replay.
  static void poison(const LayerState& s, cudaStream_t stream) {
    if (!s.poison) return;
    for (const Spoilable& part : spoilable(s))
      cuda::check(cudaMemsetAsync(part.data, kPoison, part.bytes, stream), "MEGAMOE_POISON");
  }

  static void set_deadline(LayerState& s, const ForwardOptions& options, const PreparedCall& call,
                           bool capturing) {
    const auto first =
        options.first_deadline.value_or(std::max(options.deadline, s.first_call_deadline));
    rank_of(s).set_deadlines(s.memory.local_header(), s.generation,
                             {static_cast<std::uint64_t>(options.deadline.count()),
                              static_cast<std::uint64_t>(first.count())},
                             call.stream, capturing);
  }

  std::vector<int> devices_;  ///< of each local rank
  std::vector<int> num_sms_;  ///< the same
  int arch_ = 90;             ///< check_problem admits no other
  bool one_launch_;
  int ranks_;
  std::unique_ptr<RankTable> table_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const Problem& problem, const SymmetricMemory& memory) {
  return std::make_unique<CudaBackend>(problem, memory);
}

}  // namespace megamoe
