#include "cli/unfused/check.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include <fmt/format.h>

#include "cli/unfused/plan.hpp"
#include "host/cuda/runtime.hpp"

namespace megamoe::cli::unfused {
namespace {

/// Rows that the reference computes, over all ranks.
constexpr int kRowsChecked = 8;
/// Two right results, each off by up to some 5e-2 in a row (ref/gpu_bounds.hpp). A row of another
/// token is off by more than 1.
constexpr double kWorstRowOfTwo = 0.2;

template <class Value>
void download(const void* from, std::vector<Value>& to) {
  if (to.empty()) return;
  cuda::check(cudaMemcpy(to.data(), from, to.size() * sizeof(Value), cudaMemcpyDefault),
              "copying to the host");
}

std::vector<std::vector<std::uint16_t>> downloaded(std::span<const ref::TokenRouting> routing,
                                                   std::span<const std::uint16_t* const> y,
                                                   int hidden) {
  std::vector<std::vector<std::uint16_t>> all;
  for (std::size_t r = 0; r < routing.size(); ++r)
    download(y[r], all.emplace_back(size(routing[r].num_tokens) * size(hidden)));
  return all;
}

/// The sampled tokens of one rank, staged as the layer stages them.
ref::RankTokens sample_of(const Problem& p, const ref::TokenRouting& routing,
                          const std::uint16_t* hidden_states, const std::vector<int>& tokens) {
  const std::size_t hidden = size(p.hidden), top_k = size(p.top_k);
  std::vector<std::uint16_t> states, row(hidden);
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  for (const int token : tokens) {
    download(hidden_states + size(token) * hidden, row);
    states.insert(states.end(), row.begin(), row.end());
    const auto first = static_cast<std::ptrdiff_t>(size(token) * top_k);
    const auto last = first + static_cast<std::ptrdiff_t>(top_k);
    ids.insert(ids.end(), routing.topk_idx.begin() + first, routing.topk_idx.begin() + last);
    weights.insert(weights.end(), routing.topk_weights.begin() + first,
                   routing.topk_weights.begin() + last);
  }
  return ref::stage_tokens(p, std::move(states), std::move(ids), std::move(weights));
}

}  // namespace

/// A copy of expert tensors in host memory.
struct ChainCheck::HostExperts {
  explicit HostExperts(const ExpertTensors& from) : view(from) {
    const ExpertBytes one = expert_bytes(from.precision, from.hidden, from.intermediate);
    const std::size_t experts = size(from.num_experts);
    const std::array<const std::byte**, 4> tensors = {&view.w1, &view.w1_scales, &view.w2,
                                                      &view.w2_scales};
    const std::array<std::size_t, 4> bytes = {one.w1, one.w1_scales, one.w2, one.w2_scales};
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      parts[i].resize(experts * bytes[i]);
      download(*tensors[i], parts[i]);
      *tensors[i] = parts[i].data();
    }
  }
  std::array<std::vector<std::byte>, 4> parts;
  ExpertTensors view;
};

ChainCheck::ChainCheck(const Problem& problem, std::span<const ChainRankInput> inputs)
    : problem_(problem) {
  for (const ChainRankInput& input : inputs) {
    hidden_states_.push_back(input.hidden_states);
    owned_.push_back(std::make_unique<HostExperts>(input.weight_sets.at(0)));
    weights_.routed.push_back(owned_.back()->view);
    if (input.shared == nullptr) continue;
    owned_.push_back(std::make_unique<HostExperts>(*input.shared));
    weights_.shared.push_back(owned_.back()->view);
  }
}

ChainCheck::~ChainCheck() = default;

double ChainCheck::check_sample(std::span<const ref::TokenRouting> routing,
                                const std::vector<std::vector<std::uint16_t>>& y,
                                ChainBounds& bounds) const {
  const std::size_t hidden = size(problem_.hidden);
  std::vector<ref::RankTokens> samples;
  std::vector<ref::Row> rows;
  std::vector<std::uint16_t> sampled_y;
  for (std::size_t r = 0; r < routing.size(); ++r) {
    const std::vector<int> tokens =
        sampled_tokens(routing[r].num_tokens, std::max(1, kRowsChecked / problem_.ranks));
    samples.push_back(sample_of(problem_, routing[r], hidden_states_[r], tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({static_cast<int>(r), static_cast<int>(i)});
      const auto from = y[r].begin() + static_cast<std::ptrdiff_t>(size(tokens[i]) * hidden);
      sampled_y.insert(sampled_y.end(), from, from + problem_.hidden);
    }
  }
  ref::Input input{.problem = problem_, .ranks = {}};
  for (const ref::RankTokens& sample : samples) input.ranks.push_back(sample.view());
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::vector<std::uint16_t> exact = ref::run_rows(input, weights_, rows, threads);
  bounds = ChainBounds::from_case(ref::run_rows_on_tensor_core(input, weights_, rows, threads),
                                  exact, problem_.hidden);
  return require_close(sampled_y, exact, problem_.hidden, bounds,
                       fmt::format("the reference ({} rows)", rows.size()))
      .diff;
}

double ChainCheck::check(std::span<const ref::TokenRouting> routing,
                         std::span<const std::uint16_t* const> y,
                         std::span<const std::uint16_t* const> fused_y) const {
  const auto chain = downloaded(routing, y, problem_.hidden);
  ChainBounds bounds;
  const double diff = check_sample(routing, chain, bounds);
  const auto fused = downloaded(routing, fused_y, problem_.hidden);
  // Two results that are each within a distance of the reference are within twice of each other.
  const ChainBounds of_two{.diff = 4 * bounds.diff, .worst_row = kWorstRowOfTwo};
  for (std::size_t r = 0; r < chain.size(); ++r) {
    require_close(chain[r], fused[r], problem_.hidden, of_two,
                  fmt::format("the fused kernel's on rank {}", r));
  }
  return diff;
}

}  // namespace megamoe::cli::unfused
