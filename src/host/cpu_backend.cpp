#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu/launch.hpp"
#include "host/layer_state.hpp"
#include "layout/elements.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"

namespace megamoe {
namespace {

using protocol::u32;

cpu::RankLaunch rank_launch(const PreparedCall& prepared) {
  LayerState& s = *prepared.layer;
  const RankCall& call = prepared.call;
  cpu::RankLaunch launch;
  launch.geometry = protocol::make_geometry(s.problem, prepared.config, s.rank,
                                            static_cast<u32>(list_entries(s.problem)));
  launch.memory = &s.memory;
  launch.data = {&s.problem,  nullptr, &s.memory,        call.weights,
                 call.shared, call.y,  prepared.snapshot};
  launch.record = &s.space->record();
  launch.num_tokens = static_cast<u32>(call.num_tokens);
  launch.generation = s.generation;
  launch.recv_stats = prepared.recv_stats;
  return launch;
}

/// CTAs per rank that `options` asks for.
int ctas_for_call(const Problem& problem, const ForwardOptions& options) {
  // The environment's reserve is of a GPU's SMs.
  const int reserve = options.reserved_sms.value_or(0);
  if (options.num_sms > 0) return std::max(1, options.num_sms - reserve);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - reserve);
  return std::clamp(cores / problem.ranks, 1, 8);
}

/// A launch for all of them, or one for each.
std::vector<cpu::Launch> make_launches(std::span<const cpu::RankLaunch> ranks,
                                       std::span<const PreparedCall> calls,
                                       const ForwardOptions& options) {
  const int ctas = ctas_for_call(calls.front().layer->problem, options);
  const std::size_t ranks_of_one = calls.front().layer->one_launch ? ranks.size() : 1;
  std::vector<cpu::Launch> launches;
  for (std::size_t i = 0; i < ranks.size(); i += ranks_of_one) {
    const LayerState& first = *calls[i].layer;
    const bool is_first = first.epoch() == protocol::kFirstEpoch;
    const auto deadline =
        is_first ? options.first_deadline.value_or(options.deadline) : options.deadline;
    launches.push_back({ranks.subspan(i, ranks_of_one),
                        {.grid = ctas * static_cast<int>(ranks_of_one),
                         .deadline_ns = static_cast<std::uint64_t>(deadline.count()),
                         .delay_seed = first.delay_seed,
                         .thread_limit = first.thread_limit}});
  }
  return launches;
}

/// Rows of hidden states into the input region, in the problem's number format.
void stage_hidden_states(const Problem& p, const InputViews& in, const StageCall& call) {
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const std::size_t scale_row = scale_row_bytes(p.precision, p.hidden);
  auto* codes = reinterpret_cast<std::uint8_t*>(in.x);
  std::vector<float> row(hidden);
  for (std::size_t t = 0; t < static_cast<std::size_t>(call.num_tokens); ++t) {
    const std::uint16_t* from = call.hidden_states + t * hidden;
    if (p.precision == Precision::bf16) {
      std::memcpy(in.x + t * hidden * 2, from, hidden * 2);
      continue;
    }
    for (std::size_t i = 0; i < hidden; ++i) row[i] = bf16_to_float(from[i]);
    if (p.precision == Precision::mxfp8_mxfp4) {
      quantize_mx_row(row.data(), p.hidden, codes + t * hidden,
                      reinterpret_cast<std::uint8_t*>(in.x_scales) + t * scale_row);
    } else {
      quantize_row(row.data(), p.hidden, codes + t * hidden,
                   reinterpret_cast<float*>(in.x_scales + t * scale_row));
    }
  }
}

class CpuBackend final : public Backend {
 public:
  std::unique_ptr<RankSpace> make_space(int /*local_rank*/, std::size_t local_bytes) override {
    return make_host_space(local_bytes);
  }
  void prepare_inputs(LayerState& /*layer*/) override {}
  void check(const PreparedCall& /*call*/, const ForwardOptions& /*options*/) const override {}
  void synchronize(LayerState& /*layer*/) override {}
  void after_reset(LayerState& /*layer*/) override {}
  void set_deadlines(LayerState& /*layer*/, std::chrono::nanoseconds /*deadline*/,
                     std::chrono::nanoseconds /*first_deadline*/) override {}
  [[nodiscard]] int num_sms(int /*local_rank*/) const override { return 0; }
  [[nodiscard]] bool is_capturing(Stream /*stream*/) const override { return false; }

  void forward(std::span<const PreparedCall> calls, const ForwardOptions& options) override {
    std::vector<u32> epochs;
    std::vector<cpu::RankLaunch> ranks;
    for (const PreparedCall& call : calls) {
      ranks.push_back(rank_launch(call));
      epochs.push_back(call.layer->epoch());
    }
    for (cpu::RankLaunch& rank : ranks) rank.data.g = &rank.geometry;
    try {
      cpu::run_launches(make_launches(ranks, calls, options));
    } catch (const Error&) {
      // Ranks that call elsewhere would wait for these up to their deadline.
      const LayerState& first = *calls.front().layer;
      if (calls.size() < static_cast<std::size_t>(first.problem.ranks))
        raise_abort(*calls.front().layer, protocol::Phase::none);
      throw;
    }
    for (const PreparedCall& call : calls) {
      if (!call.layer->poison) continue;
      for (const Spoilable& part : spoilable(*call.layer))
        std::memset(part.data, kPoison, part.bytes);
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].layer->epoch() != epochs[i] + 1) throw_if_faulted(*calls[i].layer);
    }
  }

  void stage(LayerState& s, const StageCall& call, Stream /*stream*/) override {
    const Problem& p = s.problem;
    const InputViews in = input_views(s);
    stage_hidden_states(p, in, call);
    const std::size_t slots = static_cast<std::size_t>(call.num_tokens) * p.top_k;
    for (std::size_t i = 0; i < slots; ++i) {
      in.topk_idx[i] = call.wide_ids ? static_cast<const std::int64_t*>(call.topk_idx)[i]
                                     : static_cast<const std::int32_t*>(call.topk_idx)[i];
      in.topk_weights[i] = call.topk_weights[i] * call.routed_scaling;
    }
    const std::size_t all_slots = static_cast<std::size_t>(p.max_tokens_per_rank) * p.top_k;
    std::fill(in.topk_idx + slots, in.topk_idx + all_slots, std::int64_t{-1});
    std::fill(in.topk_weights + slots, in.topk_weights + all_slots, 0.0F);
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace megamoe
