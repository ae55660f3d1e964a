#include "cli/bench_request.hpp"

#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/arguments.hpp"
#include "cli/numbers.hpp"
#include "cli/plan.hpp"
#include "cli/run_request.hpp"
#include "config/refuse.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr int kMostSms = 1024;
constexpr const char* kOneSender = "one-sender";

ProblemDefaults bench_defaults() {
  return {
      .ranks = 1,
      .tokens = "1,8,32,128,512,2048,8192",
      .tokens_help = "Tokens per rank; a row for each count (default 1,8,32,128,512,2048,8192)"};
}

std::vector<std::uint64_t> seeds_of(const BenchFlags& flags) {
  const std::uint64_t first = parse_seed("--seed", flags.seed.value_or("1"));
  const auto count = static_cast<std::uint64_t>(integer_or(flags.seeds, "--seeds", 1, 1000, 8));
  if (first > std::numeric_limits<std::uint64_t>::max() - count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--seed = {} leaves no {} seeds", first, count));
  }
  std::vector<std::uint64_t> seeds;
  seeds.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

std::string command_of(const Arguments& arguments) {
  std::string text = "megamoe bench";
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
}

}  // namespace

std::vector<int> BenchRequest::tokens_of_ranks(int tokens) const {
  std::vector<int> counts(static_cast<std::size_t>(problem().ranks), one_sender ? 0 : tokens);
  counts.front() = tokens;
  return counts;
}

std::string BenchRequest::routing_name() const {
  return one_sender ? kOneSender : ref::name(routing);
}

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  add_problem_flags(app, flags.problem, bench_defaults());
  const std::string group = "Timing";
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* value,
                       const char* help) { add_text(app, flag, text, value, help)->group(group); };
  add("--routing", flags.routing, "R",
      "As for run, or one-sender: uniform, and rank 0 alone brings tokens (default uniform)");
  add("--seed", flags.seed, "S", "First seed of the routing (default 1)");
  add("--seeds", flags.seeds, "N", "Routings that calls take in turn (default 8)");
  add("--repeat", flags.repeat, "R", "Timed calls of each row (default 24)");
  add("--weight-sets", flags.weight_sets, "N",
      "Sets of random weights that calls take in turn (default 2)");
  app.add_flag("--flush", flags.flush, "Read 256 MiB before each call, so that L2 holds no weights")
      ->group(group);
  app.add_flag("--virtual", flags.virtual_ranks, "All ranks in one launch on one GPU")
      ->group(group);
  app.add_flag("--unfused", flags.unfused,
               "Also time the layer as built from NCCL and cuBLASLt, after checking its output")
      ->group(group);
  add("--num-sms", flags.num_sms, "N", "Most SMs to use (default 0: all)");
  add("--reserved-sms", flags.reserved_sms, "N",
      "SMs left free (default: MEGAMOE_RESERVED_SMS, else 0)");
  add("--block-rows", flags.block_rows, "N", "Rows per block: 8, 16, 32, 64 or 128");
  add("--deadline", flags.deadline, "SECONDS", "Longest wait inside a call (default 30)");
  add("--gpu", flags.gpu, "TYPE",
      "Rates for the bound: H20, H100, H200, H800 or B200 (default: the machine's)");
  add("--chart", flags.chart, "FILE", "Where to write the times over tokens, as SVG");
  app.add_flag("--json", flags.json, "Print JSON: a list of rows");
}

BenchRequest resolve_bench(const BenchFlags& flags, const Arguments& arguments) {
  BenchRequest request;
  request.shape = resolve_shape(flags.problem, bench_defaults());
  request.one_sender = flags.routing == kOneSender;
  if (flags.routing && !request.one_sender) request.routing = parse_routing_flag(*flags.routing);
  request.seeds = seeds_of(flags);
  request.repeat = integer_or(flags.repeat, "--repeat", 1, 100'000, 24);
  request.weight_sets = integer_or(flags.weight_sets, "--weight-sets", 1, 64, 2);
  request.flush = flags.flush;
  request.virtual_ranks = flags.virtual_ranks;
  request.num_sms = integer_or(flags.num_sms, "--num-sms", 0, kMostSms, 0);
  if (flags.reserved_sms)
    request.reserved_sms = integer_or(flags.reserved_sms, "--reserved-sms", 0, kMostSms, 0);
  request.block_rows = parse_block_rows(flags.block_rows);
  const double seconds = parse_real("--deadline", flags.deadline.value_or("30"), 0.001, 3600);
  request.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  if (flags.gpu) request.gpu = &parse_gpu(*flags.gpu);
  request.chart = flags.chart;
  request.json = flags.json;
  request.unfused = flags.unfused;
  if (request.unfused && request.problem().precision != Precision::fp8) {
    refuse(fmt::format("--unfused is there for fp8, not for --precision {}",
                       name(request.problem().precision)));
  }
  request.command = command_of(arguments);
  return request;
}

}  // namespace megamoe::cli
