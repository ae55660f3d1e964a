#include <algorithm>
#include <cmath>
#include <span>

#include "cli/bench_result.hpp"

namespace megamoe::cli {
namespace {

/// All virtual ranks' work as one GPU's: nothing crosses a link.
LayerWork on_one_gpu(const Problem& p, const std::vector<RankLoad>& loads) {
  LayerWork sum;
  for (const RankLoad& load : loads) {
    const LayerWork w = actual_work(p, load);
    sum.rows += w.rows;
    sum.experts_hit += w.experts_hit;
    sum.flops += w.flops;
    sum.weight_bytes += w.weight_bytes;
    sum.pool_bytes += w.pool_bytes;
    sum.act_bytes += w.act_bytes;
    sum.combine_bytes += w.combine_bytes;
    sum.y_bytes += w.y_bytes;
  }
  return sum;
}

/// The bound of a mean load; none where the ranks' loads differ by intention.
std::optional<double> mean_bound(const BenchRequest& request, int tokens, const GpuRates& rates) {
  if (request.one_sender) return std::nullopt;
  LayerWork work = mean_work(request.problem(), tokens);
  if (request.virtual_ranks) {
    const double ranks = request.problem().ranks;
    work.flops *= ranks;
    for (double* bytes : {&work.weight_bytes, &work.pool_bytes, &work.act_bytes,
                          &work.combine_bytes, &work.y_bytes})
      *bytes *= ranks;
    work.link_bytes = work.dedup_link_bytes = 0;
  }
  return time_bound(work, rates, request.problem().precision).us;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - std::floor(at));
}

const Gpu* rates_for(const BenchRequest& request, const std::string& machine) {
  if (request.gpu != nullptr) return request.gpu;
  // H20 is the beginning of H200: the longest name that fits.
  const Gpu* found = nullptr;
  for (const Gpu& gpu : gpus()) {
    if (machine.find(gpu.name) == std::string::npos) continue;
    if (found == nullptr || gpu.name.size() > found->name.size()) found = &gpu;
  }
  return found;
}

std::vector<RankLoad> loads_of(const BenchRequest& request, int tokens, std::uint64_t seed) {
  const auto ranks = ref::random_routing(request.problem(), request.tokens_of_ranks(tokens),
                                         request.routing, seed);
  std::vector<std::span<const std::int64_t>> ids;
  ids.reserve(ranks.size());
  for (const ref::TokenRouting& rank : ranks) ids.emplace_back(rank.topk_idx);
  return count_loads(request.problem(), ids);
}

LayerWork busiest_work(const BenchRequest& request, const std::vector<RankLoad>& loads,
                       const GpuRates& rates) {
  const Problem& p = request.problem();
  if (request.virtual_ranks) return on_one_gpu(p, loads);
  LayerWork busiest;
  double longest = -1;
  for (const RankLoad& load : loads) {
    const LayerWork work = actual_work(p, load);
    const double us = time_bound(work, rates, p.precision).us;
    if (us <= longest) continue;
    longest = us;
    busiest = work;
  }
  return busiest;
}

std::vector<BenchRow> bench_rows(const BenchRequest& request, const BenchMeasurement& measured) {
  const Gpu* gpu = rates_for(request, measured.machine);
  std::vector<BenchRow> rows;
  for (const BenchTimes& times : measured.rows) {
    BenchRow row;
    row.tokens = times.tokens;
    row.time_us = percentile(times.fused_us, 50);
    row.spread_us = percentile(times.fused_us, 90) - percentile(times.fused_us, 10);
    row.staged_us = percentile(times.staged_us, 50);
    row.skew_us = times.skew_us;
    if (!times.unfused_us.empty()) {
      row.unfused_us = percentile(times.unfused_us, 50);
      row.unfused_diff = times.unfused_diff;
      if (row.staged_us > 0) row.gain = *row.unfused_us / row.staged_us;
    }
    row.config = times.config;
    const GpuRates rates = gpu != nullptr ? gpu->practical : GpuRates{1, 1, 1, 1};
    std::vector<double> bounds;
    for (std::size_t s = 0; s < std::min(request.seeds.size(), times.fused_us.size()); ++s) {
      const LayerWork work =
          busiest_work(request, loads_of(request, times.tokens, request.seeds[s]), rates);
      bounds.push_back(time_bound(work, rates, request.problem().precision).us);
      if (s > 0 || row.time_us <= 0) continue;
      row.tflops = work.flops / row.time_us / 1e6;
      row.hbm_gbs = work.hbm_bytes() / row.time_us / 1e3;
      row.nvlink_gbs = work.link_bytes / row.time_us / 1e3;
    }
    if (gpu != nullptr) {
      row.bound_us = percentile(bounds, 50);
      row.mean_bound_us = mean_bound(request, times.tokens, rates);
      if (row.time_us > 0) row.fraction = *row.bound_us / row.time_us;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace megamoe::cli
