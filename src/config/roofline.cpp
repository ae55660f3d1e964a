#include "config/roofline.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

// Practical rates of the Hopper GPUs are measured (H200: copies, NVLink pulls, grouped GEMMs) or
// scaled by the same fractions; those of B200 are assumed, tensor rates at H200's fraction of peak.
constexpr std::array<Gpu, 5> kGpus = {{
    {.name = "H20",
     .peak = {4.0e12, 450e9, 296e12, 148e12},
     .practical = {3.6e12, 375e9, 280e12, 140e12}},
    {.name = "H100",
     .peak = {3.35e12, 450e9, 1979e12, 989e12},
     .practical = {3.0e12, 375e9, 1400e12, 750e12}},
    {.name = "H200",
     .peak = {4.8e12, 450e9, 1979e12, 989e12},
     .practical = {4.3e12, 375e9, 1400e12, 750e12}},
    {.name = "H800",
     .peak = {3.35e12, 200e9, 1979e12, 989e12},
     .practical = {3.0e12, 160e9, 1400e12, 750e12}},
    {.name = "B200",
     .peak = {8.0e12, 900e9, 4500e12, 2250e12},
     .practical = {7.2e12, 750e9, 3200e12, 1700e12},
     .practical_is_assumed = true,
     .nvlink_ranks = 72,
     .blackwell = true},
}};

/// Bytes of one activation channel.
double activation_bytes(Precision precision) { return precision == Precision::bf16 ? 2.0 : 1.0; }

/// Bytes of one dispatched row. FP32 per 128 channels and UE8M0 per 32 take the same space.
double row_bytes(const Problem& p) {
  const double scales = p.precision == Precision::bf16 ? 0.0 : 4.0 * p.hidden / 128.0;
  return p.hidden * activation_bytes(p.precision) + scales;
}

double contribution_bytes(const Problem& p) { return 2.0 * p.hidden; }

/// Fills everything but the link bytes.
LayerWork local_work(const Problem& p, double tokens, double received, double sent, double hit) {
  const double shared_rows = tokens * p.shared_experts;
  LayerWork w;
  w.rows = received + shared_rows;
  w.experts_hit = hit + (tokens > 0 ? p.shared_experts : 0);
  w.flops = 6.0 * p.hidden * p.intermediate * w.rows;
  w.weight_bytes = w.experts_hit * 3.0 * p.hidden * p.intermediate * bytes_per_weight(p.precision);
  w.pool_bytes = w.rows * 2.0 * row_bytes(p);
  w.act_bytes = w.rows * 2.0 * p.intermediate * activation_bytes(p.precision);
  w.combine_bytes = (sent + shared_rows) * 2.0 * contribution_bytes(p);
  w.y_bytes = tokens * contribution_bytes(p);
  return w;
}

/// 1 - C(E - El, k) / C(E, k): the chance that a token visits a given rank.
double visit_chance(const Problem& p) {
  double missed = 1.0;
  for (int i = 0; i < p.top_k; ++i) {
    const int elsewhere = p.experts - p.experts_per_rank() - i;
    if (elsewhere <= 0) return 1.0;
    missed *= static_cast<double>(elsewhere) / (p.experts - i);
  }
  return 1.0 - missed;
}

}  // namespace

std::span<const Gpu> gpus() { return kGpus; }

const Gpu* find_gpu(std::string_view name) {
  const auto* const it =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& g) { return g.name == name; });
  return it == kGpus.end() ? nullptr : it;
}

double bytes_per_weight(Precision precision) {
  switch (precision) {
    case Precision::fp8:
      return 1.0 + 4.0 / (128 * 128);
    case Precision::bf16:
      return 2.0;
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      return 0.5 + 1.0 / 32;
  }
  return 0.0;
}

LayerWork mean_work(const Problem& p, long tokens) {
  const auto m = static_cast<double>(tokens);
  const double n = p.ranks;
  const double rows = m * p.top_k;
  const double chosen = static_cast<double>(p.top_k) / p.experts;
  const double hit = p.experts_per_rank() * (1.0 - std::pow(1.0 - chosen, n * m));
  LayerWork w = local_work(p, m, rows, rows, hit);
  const double remote = m * (p.top_k * (n - 1.0) / n);
  w.dispatch_bytes = remote * row_bytes(p);
  w.combine_link_bytes = remote * contribution_bytes(p);
  w.link_bytes = w.dispatch_bytes + w.combine_link_bytes;
  const double copies = p.ranks > 1 ? m * (n - 1.0) * visit_chance(p) : 0.0;
  w.dedup_link_bytes = copies * (row_bytes(p) + contribution_bytes(p));
  return w;
}

std::vector<RankLoad> count_loads(const Problem& p,
                                  std::span<const std::span<const std::int64_t>> topk_idx) {
  if (topk_idx.size() != static_cast<std::size_t>(p.ranks)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("routing of {} ranks given for {} ranks", topk_idx.size(), p.ranks));
  }
  std::vector<RankLoad> loads(topk_idx.size());
  std::vector<char> hit(static_cast<std::size_t>(p.experts), 0);
  std::vector<long> last_visit(topk_idx.size());
  for (std::size_t src = 0; src < topk_idx.size(); ++src) {
    const std::span<const std::int64_t> ids = topk_idx[src];
    if (ids.size() % static_cast<std::size_t>(p.top_k) != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank {} has {} expert ids, not a multiple of top_k = {}", src,
                              ids.size(), p.top_k));
    }
    loads[src].tokens = static_cast<long>(ids.size()) / p.top_k;
    std::fill(last_visit.begin(), last_visit.end(), -1L);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= p.experts) continue;
      hit[static_cast<std::size_t>(ids[i])] = 1;
      const auto dst = static_cast<std::size_t>(ids[i] / p.experts_per_rank());
      ++loads[src].rows_sent;
      ++loads[dst].rows_received;
      if (dst == src) continue;
      ++loads[src].remote_sent;
      ++loads[dst].remote_received;
      const long token = static_cast<long>(i) / p.top_k;
      if (last_visit[dst] == token) continue;
      last_visit[dst] = token;
      ++loads[src].copies_sent;
      ++loads[dst].copies_received;
    }
  }
  for (std::size_t e = 0; e < hit.size(); ++e) {
    loads[e / static_cast<std::size_t>(p.experts_per_rank())].experts_hit += hit[e];
  }
  return loads;
}

LayerWork actual_work(const Problem& p, const RankLoad& load) {
  const auto received = static_cast<double>(load.rows_received);
  const auto sent = static_cast<double>(load.rows_sent);
  LayerWork w = local_work(p, static_cast<double>(load.tokens), received, sent, load.experts_hit);
  // A sent row goes out as activations and comes back as a contribution; a received one the other
  // way round.
  const auto busier = [&](long out, long in, double& link) {
    const double row = row_bytes(p);
    const double back = contribution_bytes(p);
    const auto o = static_cast<double>(out);
    const auto i = static_cast<double>(in);
    link = std::max(o * row + i * back, i * row + o * back);
  };
  const auto most = static_cast<double>(std::max(load.remote_sent, load.remote_received));
  w.dispatch_bytes = most * row_bytes(p);
  w.combine_link_bytes = most * contribution_bytes(p);
  busier(load.remote_sent, load.remote_received, w.link_bytes);
  busier(load.copies_sent, load.copies_received, w.dedup_link_bytes);
  return w;
}

const char* name(Limit limit) {
  switch (limit) {
    case Limit::hbm:
      return "HBM";
    case Limit::nvlink:
      return "NVLink";
    case Limit::tensor:
      return "tensor";
  }
  return "unknown";
}

Bound time_bound(const LayerWork& work, const GpuRates& rates, Precision precision, Copies copies) {
  constexpr double kMicro = 1e6;
  const double link = copies == Copies::per_expert ? work.link_bytes : work.dedup_link_bytes;
  Bound b;
  b.hbm_us = work.hbm_bytes() / rates.hbm * kMicro;
  b.nvlink_us = link / rates.nvlink * kMicro;
  b.tensor_us = work.flops / (precision == Precision::bf16 ? rates.bf16 : rates.fp8) * kMicro;
  b.us = std::max({b.hbm_us, b.nvlink_us, b.tensor_us});
  b.limit = b.us == b.hbm_us ? Limit::hbm : b.us == b.nvlink_us ? Limit::nvlink : Limit::tensor;
  return b;
}

Bound time_bound(const Problem& problem, std::span<const RankLoad> loads, const GpuRates& rates,
                 Copies copies) {
  Bound longest;
  for (const RankLoad& load : loads) {
    const Bound b = time_bound(actual_work(problem, load), rates, problem.precision, copies);
    if (b.us > longest.us) longest = b;
  }
  return longest;
}

}  // namespace megamoe
