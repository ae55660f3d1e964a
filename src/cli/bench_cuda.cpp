#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "cli/bench_rank.hpp"
#include "cli/bench_release.hpp"
#include "cli/bench_result.hpp"
#include "cli/call_graphs.hpp"
#include "cli/progress.hpp"
#include "cli/run_backend.hpp"
#include "cli/unfused/chain.hpp"
#include "cli/unfused/check.hpp"
#include "config/kernel_config.hpp"
#include "host/devices.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceGuard;

/// More than any L2.
constexpr std::size_t kFlushBytes = std::size_t{256} << 20U;

enum class Kind : std::uint8_t { fused, staged, unfused };

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
    if (request.unfused) make_unfused();
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
    times.fused_us = measure_kind(Kind::fused, times, progress);
    times.staged_us = measure_kind(Kind::staged, times, progress);
    if (chain_) {
      chain_->prepare(host_routings_);
      times.unfused_us = measure_kind(Kind::unfused, times, progress);
    }
    for (int r = 0; r < request_.problem().ranks; ++r) group_.layer(r).check();
    return times;
  }

  /// The libraries of the unfused chain, or what is missing for it.
  [[nodiscard]] const std::string& unfused_note() const { return unfused_note_; }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] int num_streams() const {
    return request_.virtual_ranks ? 1 : request_.problem().ranks;
  }
  [[nodiscard]] cudaStream_t stream(int rank) const {
    return ranks_[request_.virtual_ranks ? 0 : index(rank)]->stream.get();
  }

  void make_unfused() {
    unfused_note_ = unfused::why_no_chain(devices_);
    if (!unfused_note_.empty()) return;
    std::vector<unfused::ChainRankInput> inputs;
    for (int r = 0; r < request_.problem().ranks; ++r) {
      const BenchRank& rank = *ranks_[index(r)];
      auto& input = inputs.emplace_back(unfused::ChainRankInput{
          .device = rank.device,
          .stream = stream(r),
          .hidden_states = reinterpret_cast<const std::uint16_t*>(rank.hidden_states.data()),
          .weight_sets = {},
          .shared = rank.shared ? &rank.shared->view() : nullptr});
      for (const auto& set : rank.weights) input.weight_sets.push_back(set->view());
    }
    chain_check_ = std::make_unique<unfused::ChainCheck>(request_.problem(), inputs);
    chain_ = unfused::make_chain(request_.problem(), std::move(inputs));
    unfused_note_ = chain_->note();
  }

  /// Throws Error unless what is about to be allocated fits.
  void require_memory() const {
    const Problem& p = request_.problem();
    const std::size_t weights =
        RandomExperts::bytes(p, p.experts_per_rank()) * index(request_.weight_sets) +
        RandomExperts::bytes(p, p.shared_experts);
    const std::size_t ranks_on_one = request_.virtual_ranks ? index(p.ranks) : 1;
    const std::size_t of_chain =
        request_.unfused ? unfused::chain_bytes(p, request_.weight_sets) : 0;
    const std::size_t needed =
        (weights + of_chain + 4 * BenchRank::values(p)) * ranks_on_one + kFlushBytes;
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
    const std::vector<int> counts = request_.tokens_of_ranks(tokens_);
    options_.global_num_tokens = std::accumulate(counts.begin(), counts.end(), 0L);
    options_.num_sms = request_.num_sms;
    options_.reserved_sms = request_.reserved_sms;
    options_.deadline = request_.deadline;
    if (request_.block_rows == 0) return;
    config_ = config_for_block_rows(p, request_.block_rows);
    options_.config = &config_;
  }

  void upload_routings() {
    routings_.clear();
    host_routings_.clear();
    const Problem& p = request_.problem();
    for (const std::uint64_t seed : request_.seeds) {
      const auto& ranks = host_routings_.emplace_back(
          ref::random_routing(p, request_.tokens_of_ranks(tokens_), request_.routing, seed));
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
                       .num_tokens = routings_[0][index(r)]->num_tokens,
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
    if (kind == Kind::unfused) {
      chain_->run(routing, set);
    } else {
      start_call(set);
    }
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

  /// One replay of the chain's graph of the first routing and weights, whose output must be right.
  double checked_replay(const CallGraphs& graphs) {
    std::vector<const std::uint16_t*> chain_y, fused_y;
    for (int r = 0; r < request_.problem().ranks; ++r) {
      const DeviceGuard guard(devices_[index(r)]);
      std::uint16_t* y = chain_->y(index(r));
      const std::size_t bytes = index(routings_[0][index(r)]->num_tokens) *
                                index(request_.problem().hidden) * sizeof(std::uint16_t);
      // NaN, so that what is not written is seen
      cuda::check(cudaMemsetAsync(y, 0xFF, bytes, stream(r)), "clearing y");
      chain_y.push_back(y);
      fused_y.push_back(reinterpret_cast<const std::uint16_t*>(ranks_[index(r)]->y.data()));
    }
    double ignored = 0;
    replay(graphs, ignored);
    run_eagerly(0, 0);
    return chain_check_->check(host_routings_[0], chain_y, fused_y);
  }

  std::vector<double> measure_kind(Kind kind, BenchTimes& times, Progress& progress) {
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
    if (kind == Kind::unfused) times.unfused_diff = checked_replay(*graphs.at(calls.front()));
    std::vector<double> us;
    for (const Key& key : calls) {
      us.push_back(replay(*graphs.at(key), times.skew_us));
      progress.advance();
    }
    return us;
  }

  const BenchRequest& request_;
  std::vector<int> devices_;  ///< [ranks]
  std::vector<std::unique_ptr<BenchRank>> ranks_;
  std::vector<std::vector<ref::TokenRouting>> host_routings_;       ///< [seeds][ranks]
  std::vector<std::vector<std::unique_ptr<GpuRouting>>> routings_;  ///< [seeds][ranks]
  std::vector<DeviceBuffer> flush_, sinks_;                         ///< [streams]
  KernelConfig config_;
  ForwardOptions options_;
  int tokens_ = 0;
  Group group_;  // waits for its calls before the ranks' memory goes
  Releaser releaser_;
  std::string unfused_note_;
  std::unique_ptr<unfused::ChainCheck> chain_check_;
  std::unique_ptr<unfused::UnfusedChain> chain_;
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
                    static_cast<std::int64_t>(request.shape.tokens.size()) *
                        (request.unfused ? 3 : 2) * request.repeat);
  measured.unfused_note = bench.unfused_note();
  for (const int tokens : request.shape.tokens)
    measured.rows.push_back(bench.measure_row(tokens, progress));
  return measured;
}

}  // namespace megamoe::cli
