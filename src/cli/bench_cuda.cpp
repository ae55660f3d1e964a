#include <algorithm>
#include <map>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "cli/bench_release.hpp"
#include "cli/bench_result.hpp"
#include "cli/bench_weights.hpp"
#include "cli/progress.hpp"
#include "cli/run_backend.hpp"
#include "config/kernel_config.hpp"
#include "host/cuda/event.hpp"
#include "host/devices.hpp"
#include "kernels/fill.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceGuard;

/// More than any L2.
constexpr std::size_t kFlushBytes = std::size_t{256} << 20U;

/// The ids and weights of one rank's tokens under one routing, on its GPU.
struct GpuRouting {
  GpuRouting(int device, const ref::TokenRouting& from)
      : num_tokens(from.num_tokens),
        slots(from.topk_idx.size()),
        ids(device, slots * sizeof(std::int64_t)),
        weights(device, slots * sizeof(float)) {
    const cuda::PrivateStream stream;
    cuda::check(cudaMemcpyAsync(ids.data(), from.topk_idx.data(), slots * sizeof(std::int64_t),
                                cudaMemcpyDefault, stream.get()),
                "copying ids");
    cuda::check(cudaMemcpyAsync(weights.data(), from.topk_weights.data(), slots * sizeof(float),
                                cudaMemcpyDefault, stream.get()),
                "copying weights");
    cuda::check(cudaStreamSynchronize(stream.get()), "copying a routing");
  }
  int num_tokens;
  std::size_t slots;
  DeviceBuffer ids, weights;
};

/// What one rank's calls use on its GPU. Made with the device current.
struct BenchRank {
  BenchRank(int device_index, const Problem& p, std::uint64_t seed)
      : device(device_index), hidden_states(device, values(p) * 2), y(device, values(p) * 2) {
    cuda::check(launch_fill_bf16(reinterpret_cast<std::uint16_t*>(hidden_states.data()), values(p),
                                 seed, stream.get()),
                "hidden states");
    cuda::check(cudaStreamSynchronize(stream.get()), "hidden states");
  }
  static std::size_t values(const Problem& p) {
    return static_cast<std::size_t>(p.max_tokens_per_rank) * static_cast<std::size_t>(p.hidden);
  }

  int device;
  std::vector<std::unique_ptr<RandomExperts>> weights;  ///< [weight sets]
  std::unique_ptr<RandomExperts> shared;
  DeviceBuffer hidden_states, y;
  cuda::PrivateStream stream;
  cuda::Event begin, end;
};

/// Graphs of one call, one per stream.
class CallGraphs {
 public:
  /// Ends the captures of all streams. Instantiating waits until none is left: it is refused while
  /// a thread captures anything.
  CallGraphs(std::span<const cudaStream_t> streams, std::span<const int> devices) {
    for (const cudaStream_t stream : streams)
      cuda::check(cudaStreamEndCapture(stream, &graphs_.emplace_back(nullptr)), "end of a capture");
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const DeviceGuard guard(devices[s]);
      cuda::check(cudaGraphInstantiate(&executables_.emplace_back(nullptr), graphs_[s], 0),
                  "cudaGraphInstantiate");
    }
  }
  CallGraphs(const CallGraphs&) = delete;
  CallGraphs& operator=(const CallGraphs&) = delete;
  ~CallGraphs() {
    for (cudaGraphExec_t executable : executables_)
      if (executable != nullptr) cudaGraphExecDestroy(executable);
    for (cudaGraph_t graph : graphs_)
      if (graph != nullptr) cudaGraphDestroy(graph);
  }
  [[nodiscard]] cudaGraphExec_t get(std::size_t stream) const { return executables_[stream]; }

 private:
  std::vector<cudaGraph_t> graphs_;
  std::vector<cudaGraphExec_t> executables_;
};

enum class Kind : std::uint8_t { fused, staged };

/// All ranks of a bench with their Group.
class Bench {
 public:
  Bench(const BenchRequest& request, const std::vector<int>& devices)
      : request_(request),
        devices_(devices),
        group_(request.problem(), request.virtual_ranks ? SymmetricMemory::cuda_virtual(
                                                              request.problem().ranks, devices[0])
                                                        : SymmetricMemory::cuda_peers(devices)),
        releaser_(num_streams()) {
    require_memory();
    const Problem& p = request.problem();
    for (int r = 0; r < p.ranks; ++r) {
      const DeviceGuard guard(devices_[index(r)]);
      const auto seed = static_cast<std::uint64_t>(r + 1) * 1000;
      auto rank = std::make_unique<BenchRank>(devices_[index(r)], p, seed);
      for (int set = 0; set < request.weight_sets; ++set)
        rank->weights.push_back(std::make_unique<RandomExperts>(
            rank->device, p, p.experts_per_rank(), seed + static_cast<std::uint64_t>(set)));
      if (p.shared_experts > 0)
        rank->shared = std::make_unique<RandomExperts>(rank->device, p, p.shared_experts, 999);
      ranks_.push_back(std::move(rank));
    }
    for (int s = 0; request.flush && s < num_streams(); ++s) {
      flush_.emplace_back(devices_[index(s)], kFlushBytes);
      sinks_.emplace_back(devices_[index(s)], sizeof(std::uint32_t));
    }
  }

  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    // after an error a call may still wait for its release
    releaser_.let_go();
    for (int s = 0; s < static_cast<int>(ranks_.size()) && s < num_streams(); ++s)
      cudaStreamSynchronize(stream(s));
  }

  /// Times one token count.
  BenchTimes measure_row(int tokens, Progress& progress) {
    tokens_ = tokens;
    choose_configuration();
    upload_routings();
    for (int set = 0; set < request_.weight_sets; ++set) run_eagerly(0, index(set));
    BenchTimes times;
    times.tokens = tokens;
    times.config = group_.layer(0).check().config;
    for (const Kind kind : {Kind::fused, Kind::staged}) {
      auto& us = kind == Kind::fused ? times.fused_us : times.staged_us;
      us = measure_kind(kind, times.skew_us, progress);
    }
    for (int r = 0; r < request_.problem().ranks; ++r) group_.layer(r).check();
    return times;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] int num_streams() const {
    return request_.virtual_ranks ? 1 : request_.problem().ranks;
  }
  [[nodiscard]] cudaStream_t stream(int rank) const {
    return ranks_[request_.virtual_ranks ? 0 : index(rank)]->stream.get();
  }

  /// Throws Error unless what is about to be allocated fits.
  void require_memory() const {
    const Problem& p = request_.problem();
    const std::size_t weights =
        RandomExperts::bytes(p, p.experts_per_rank()) * index(request_.weight_sets) +
        RandomExperts::bytes(p, p.shared_experts);
    const std::size_t ranks_on_one = request_.virtual_ranks ? index(p.ranks) : 1;
    const std::size_t needed = (weights + 4 * BenchRank::values(p)) * ranks_on_one + kFlushBytes;
    for (int s = 0; s < num_streams(); ++s) {
      const DeviceGuard guard(devices_[index(s)]);
      std::size_t free = 0, total = 0;
      cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      if (needed <= free) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("device {} has {} bytes free, --weight-sets = {} and the tokens need "
                              "{}; fewer --experts or sets fit",
                              devices_[index(s)], free, request_.weight_sets, needed));
    }
  }

  void choose_configuration() {
    const Problem& p = request_.problem();
    options_ = {};
    options_.global_num_tokens = static_cast<long>(tokens_) * p.ranks;
    options_.num_sms = request_.num_sms;
    options_.reserved_sms = request_.reserved_sms;
    options_.deadline = request_.deadline;
    if (request_.block_rows == 0) return;
    config_ = config_for_block_rows(p, request_.block_rows);
    options_.config = &config_;
  }

  void upload_routings() {
    routings_.clear();
    const Problem& p = request_.problem();
    for (const std::uint64_t seed : request_.seeds) {
      const auto ranks =
          ref::random_routing(p, request_.tokens_of_ranks(tokens_), request_.routing, seed);
      auto& uploaded = routings_.emplace_back();
      for (int r = 0; r < p.ranks; ++r) {
        const DeviceGuard guard(devices_[index(r)]);
        uploaded.push_back(std::make_unique<GpuRouting>(devices_[index(r)], ranks[index(r)]));
      }
    }
  }

  void start_stage(std::size_t routing) {
    for (int r = 0; r < request_.problem().ranks; ++r) {
      const GpuRouting& from = *routings_[routing][index(r)];
      group_.layer(r).stage(
          reinterpret_cast<const std::uint16_t*>(ranks_[index(r)]->hidden_states.data()),
          std::span(reinterpret_cast<const std::int64_t*>(from.ids.data()), from.slots),
          std::span(reinterpret_cast<const float*>(from.weights.data()), from.slots),
          from.num_tokens, 1.0F, stream(r));
    }
  }

  void start_call(std::size_t set) {
    std::vector<RankCall> calls;
    std::vector<Stream> streams;
    for (int r = 0; r < request_.problem().ranks; ++r) {
      const BenchRank& rank = *ranks_[index(r)];
      calls.push_back({.y = reinterpret_cast<std::uint16_t*>(rank.y.data()),
                       .num_tokens = tokens_,
                       .weights = &rank.weights[set]->view(),
                       .shared = rank.shared ? &rank.shared->view() : nullptr});
      if (r < num_streams()) streams.push_back(stream(r));
    }
    group_.forward(calls, options_, streams);
  }

  /// One call outside a graph: what a first call has to do is done then.
  void run_eagerly(std::size_t routing, std::size_t set) {
    start_stage(routing);
    start_call(set);
    group_.synchronize();
    for (int r = 0; r < request_.problem().ranks; ++r) group_.layer(r).check();
  }

  /// Staging, unless it is timed; flush; release; then, between two events, the call.
  std::unique_ptr<CallGraphs> capture(Kind kind, std::size_t routing, std::size_t set) {
    const auto on_streams = [&](const auto& action) {
      for (int s = 0; s < num_streams(); ++s) {
        const DeviceGuard guard(devices_[index(s)]);
        action(s, stream(s));
      }
    };
    on_streams([](int, cudaStream_t on) {
      cuda::check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "capture");
    });
    if (kind == Kind::fused) start_stage(routing);
    on_streams([&](int s, cudaStream_t on) {
      if (request_.flush) {
        cuda::check(
            launch_read_through(flush_[index(s)].data(), kFlushBytes,
                                reinterpret_cast<std::uint32_t*>(sinks_[index(s)].data()), on),
            "reading through L2");
      }
      releaser_.hold(s, on);
      ranks_[index(s)]->begin.record_in_replays(on);
    });
    if (kind == Kind::staged) start_stage(routing);
    start_call(set);
    std::vector<cudaStream_t> streams;
    on_streams([&](int s, cudaStream_t on) {
      ranks_[index(s)]->end.record_in_replays(on);
      streams.push_back(on);
    });
    return std::make_unique<CallGraphs>(streams, devices_);
  }

  /// One replay; the longest time over the GPUs.
  double replay(const CallGraphs& graphs, double& skew_us) {
    releaser_.prepare();
    for (int s = 0; s < num_streams(); ++s) {
      const DeviceGuard guard(devices_[index(s)]);
      cuda::check(cudaGraphLaunch(graphs.get(index(s)), stream(s)), "cudaGraphLaunch");
    }
    skew_us = std::max(skew_us, releaser_.release());
    double us = 0;
    for (int s = 0; s < num_streams(); ++s) {
      const DeviceGuard guard(devices_[index(s)]);
      cuda::check(cudaStreamSynchronize(stream(s)), "waiting for a call");
      us = std::max(us, ranks_[index(s)]->end.us_since(ranks_[index(s)]->begin));
    }
    return us;
  }

  std::vector<double> measure_kind(Kind kind, double& skew_us, Progress& progress) {
    using Key = std::pair<std::size_t, std::size_t>;  // routing, weight set
    std::map<Key, std::unique_ptr<CallGraphs>> graphs;
    std::vector<Key> calls;
    for (std::size_t i = 0; i < index(request_.repeat); ++i) {
      calls.emplace_back(i % request_.seeds.size(), i % index(request_.weight_sets));
      if (!graphs.contains(calls.back()))
        graphs.emplace(calls.back(), capture(kind, calls.back().first, calls.back().second));
    }
    // a graph's first replay also brings it to the device
    double ignored = 0;
    for (const auto& [key, graph] : graphs) replay(*graph, ignored);
    std::vector<double> us;
    for (const Key& key : calls) {
      us.push_back(replay(*graphs.at(key), skew_us));
      progress.advance();
    }
    return us;
  }

  const BenchRequest& request_;
  std::vector<int> devices_;  ///< [ranks]
  std::vector<std::unique_ptr<BenchRank>> ranks_;
  std::vector<std::vector<std::unique_ptr<GpuRouting>>> routings_;  ///< [seeds][ranks]
  std::vector<DeviceBuffer> flush_, sinks_;                         ///< [streams]
  KernelConfig config_;
  ForwardOptions options_;
  int tokens_ = 0;
  Group group_;  // waits for its calls before the ranks' memory goes
  Releaser releaser_;
};

}  // namespace

BenchMeasurement measure(const BenchRequest& request, Io& io) {
  const Problem& p = request.problem();
  if (const std::string why = why_too_few_gpus(find_devices(), request.virtual_ranks, p);
      !why.empty())
    throw Error(ErrorCode::unsupported, "timing needs GPUs: " + why);
  const std::vector<int> usable = find_devices().usable;
  std::vector<int> devices(usable.begin(), usable.begin() + (request.virtual_ranks ? 1 : p.ranks));
  devices.resize(static_cast<std::size_t>(p.ranks), usable.front());
  BenchMeasurement measured;
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, devices.front()), "cudaGetDeviceProperties");
  measured.machine = properties.name;
  Bench bench(request, devices);
  Progress progress(io.err, io.err_is_terminal && !request.json, "calls",
                    static_cast<std::int64_t>(request.shape.tokens.size()) * 2 * request.repeat);
  for (const int tokens : request.shape.tokens)
    measured.rows.push_back(bench.measure_row(tokens, progress));
  return measured;
}

}  // namespace megamoe::cli
