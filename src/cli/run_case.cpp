#include "cli/run_case.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/table.hpp"
#include "config/roofline.hpp"
#include "host/checkpoint/tensor_file.hpp"
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

/// The tokens of an --input file, rows padded with zeros to the layer's hidden size, and the token
/// count of each rank.
struct Input {
  TokenFile file;
  std::vector<int> counts;
};

Input read_input(const RunRequest& request) {
  ProblemFlags flags = request.problem;
  if (!flags.tokens) flags.tokens = "0";
  const Shape shape = resolve_run_shape(request, flags);
  const Problem& p = shape.problem;
  Input input;
  input.file = read_token_file(
      *request.input, {.hidden = shape.stated_hidden, .top_k = p.top_k, .experts = p.experts});
  const std::vector<int> listed = request.problem.tokens ? shape.tokens : std::vector<int>{};
  input.counts = split_tokens(input.file.num_tokens, p.ranks, listed);
  input.file.hidden_states = pad_rows(input.file.hidden_states, shape.stated_hidden, p.hidden);
  return input;
}

/// `count` rows of `width` values from row `first` on.
template <class Value>
std::vector<Value> rows_of(const std::vector<Value>& values, std::size_t first, std::size_t count,
                           int width) {
  const auto stride = static_cast<std::size_t>(width);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * stride);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * stride)};
}

/// One rank's tokens out of the file; routing that it does not have comes from `generated`.
ref::RankTokens rank_tokens(const Problem& p, const TokenFile& file,
                            const ref::RankTokens& generated, std::size_t first) {
  const auto count = static_cast<std::size_t>(generated.num_tokens);
  std::vector<std::uint16_t> hidden_states = rows_of(file.hidden_states, first, count, p.hidden);
  if (file.top_k == 0) {
    return ref::stage_tokens(p, std::move(hidden_states), generated.topk_idx,
                             generated.topk_weights);
  }
  return ref::stage_tokens(p, std::move(hidden_states),
                           rows_of(file.topk_idx, first, count, p.top_k),
                           rows_of(file.topk_weights, first, count, p.top_k));
}

void fill_tokens(const RunRequest& request, const std::optional<Input>& input, RunCase& run) {
  const std::vector<int> counts = tokens_per_rank(run.shape);
  ref::RandomInputs generated =
      ref::random_inputs(run.problem(), counts, request.routing, request.seed);
  if (!input) {
    run.tokens = std::move(generated.ranks);
    return;
  }
  std::size_t first = 0;
  for (const ref::RankTokens& rank : generated.ranks) {
    run.tokens.push_back(rank_tokens(run.problem(), input->file, rank, first));
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
  ProblemFlags flags = request.problem;
  std::optional<Input> input;
  if (request.input) {
    input = read_input(request);
    flags.tokens = fmt::format("{}", fmt::join(input->counts, ","));
  }
  run.shape = resolve_run_shape(request, flags);
  check_memory(run.problem());
  // Weights first: a checkpoint's tensors decide the precision in which tokens are staged.
  fill_weights(request, run, io);
  fill_tokens(request, input, run);
  return run;
}

}  // namespace megamoe::cli
