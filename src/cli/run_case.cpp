#include "cli/run_case.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/models.hpp"
#include "cli/progress.hpp"
#include "cli/run_files.hpp"
#include "cli/table.hpp"
#include "config/roofline.hpp"
#include "layout/local_layout.hpp"
#include "layout/symmetric_layout.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

/// Bytes that the system can still give, or nothing where it does not say.
std::optional<double> available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kilobytes = 0;
  std::string unit;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return std::nullopt;
}

void check_memory(const Problem& p) {
  const double regions =
      static_cast<double>(symmetric_layout(p).bytes + local_layout(p).bytes) * p.ranks;
  const double needed = weight_bytes(p) + regions;
  const std::optional<double> available = available_bytes();
  if (!available || needed <= *available) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("the run needs {} ({} of weights), this machine has {}; lower --experts, "
                          "--capacity or --ranks",
                          bytes_text(needed), bytes_text(weight_bytes(p)), bytes_text(*available)));
}

void check_input(const Shape& shape, const InputTokens& input, const std::vector<int>& counts,
                 const std::string& path) {
  if (input.hidden != shape.stated_hidden) {
    throw Error(ErrorCode::invalid_file,
                fmt::format("file {}: hidden_states has {} channels, the layer {}", path,
                            input.hidden, shape.stated_hidden));
  }
  if (input.top_k != 0 && input.top_k != shape.problem.top_k) {
    throw Error(ErrorCode::invalid_file, fmt::format("file {}: topk_idx has {} slots, the layer {}",
                                                     path, input.top_k, shape.problem.top_k));
  }
  const std::int64_t dealt = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (dealt != input.tokens) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--tokens deals {} tokens to the ranks, file {} has {}", dealt, path,
                            input.tokens));
  }
}

/// One rank's tokens out of the file; padding channels are zero. Routing that the file does not
/// have comes from `generated`.
ref::RankTokens rank_tokens(const Shape& shape, const InputTokens& input,
                            const ref::RankTokens& generated, std::size_t first) {
  const auto count = static_cast<std::size_t>(generated.num_tokens);
  const auto from = static_cast<std::size_t>(shape.stated_hidden);
  const auto to = static_cast<std::size_t>(shape.problem.hidden);
  std::vector<std::uint16_t> hidden_states(count * to, 0);
  for (std::size_t t = 0; t < count; ++t) {
    std::copy_n(input.hidden_states.begin() + static_cast<std::ptrdiff_t>((first + t) * from), from,
                hidden_states.begin() + static_cast<std::ptrdiff_t>(t * to));
  }
  if (input.top_k == 0) {
    return ref::stage_tokens(shape.problem, std::move(hidden_states), generated.topk_idx,
                             generated.topk_weights);
  }
  const auto k = static_cast<std::size_t>(input.top_k);
  const auto begin = static_cast<std::ptrdiff_t>(first * k);
  const auto end = static_cast<std::ptrdiff_t>((first + count) * k);
  return ref::stage_tokens(shape.problem, std::move(hidden_states),
                           {input.topk_idx.begin() + begin, input.topk_idx.begin() + end},
                           {input.topk_weights.begin() + begin, input.topk_weights.begin() + end});
}

void fill_tokens(const RunRequest& request, const std::optional<InputTokens>& input,
                 const std::vector<int>& counts, RunCase& run) {
  const ref::RandomInputs generated =
      ref::random_inputs(run.problem(), counts, request.routing, request.seed);
  if (!input) {
    run.tokens = generated.ranks;
    return;
  }
  std::size_t first = 0;
  for (const ref::RankTokens& rank : generated.ranks) {
    run.tokens.push_back(rank_tokens(run.shape, *input, rank, first));
    first += static_cast<std::size_t>(rank.num_tokens);
  }
}

}  // namespace

ref::Input RunCase::reference_input() const {
  ref::Input input{.problem = shape.problem, .ranks = {}};
  for (const ref::RankTokens& rank : tokens) input.ranks.push_back(rank.view());
  return input;
}

double RunCase::flops() const {
  double rows = 0;
  for (const ref::RankTokens& rank : tokens) {
    rows += static_cast<double>(rank.num_tokens) * problem().shared_experts;
    for (const std::int64_t id : rank.topk_idx) {
      if (id >= 0 && id < problem().experts) rows += 1;
    }
  }
  return 6.0 * problem().hidden * problem().intermediate * rows;
}

double weight_bytes(const Problem& p) {
  const double experts = p.experts + static_cast<double>(p.ranks) * p.shared_experts;
  return 3.0 * p.hidden * p.intermediate * experts * bytes_per_weight(p.precision);
}

RunCase make_run_case(const RunRequest& request, Io& io) {
  RunCase run;
  std::optional<InputTokens> input;
  ProblemFlags flags = request.problem;
  if (request.input) {
    input = read_input(*request.input);
    if (!flags.tokens) {
      // The shape is resolved twice: the number of ranks decides how the tokens are dealt.
      flags.tokens = "0";
      const int ranks = resolve_run_shape(request, flags).problem.ranks;
      flags.tokens = fmt::format("{}", fmt::join(deal_tokens(input->tokens, ranks), ","));
    }
  }
  run.shape = resolve_run_shape(request, flags);
  const std::vector<int> counts = tokens_per_rank(run.shape);
  if (input) check_input(run.shape, *input, counts, *request.input);
  check_memory(run.problem());
  // Weights first: a checkpoint's tensors decide the precision in which tokens are staged.
  fill_weights(request, run, io);
  fill_tokens(request, input, counts, run);
  return run;
}

}  // namespace megamoe::cli
