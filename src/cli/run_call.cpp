#include "cli/run_call.hpp"

#include <algorithm>
#include <chrono>

#include "cli/progress.hpp"
#include "cli/run_cuda.hpp"
#include "config/kernel_config.hpp"
#include "megamoe/error.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

std::unique_ptr<SymmetricMemory> make_memory(const RunRequest& request, int ranks) {
  return request.virtual_ranks ? SymmetricMemory::host_virtual(ranks)
                               : SymmetricMemory::host(ranks);
}

const ref::RankTokens& tokens_of(const RunCase& run, int rank) {
  return run.tokens[static_cast<std::size_t>(rank)];
}

void stage_tokens(const RunCase& run, Group& group) {
  for (int i = 0; i < group.num_local_ranks(); ++i) {
    Layer& layer = group.layer(i);
    const ref::RankTokens& tokens = tokens_of(run, layer.rank());
    layer.stage(tokens.hidden_states.data(), tokens.topk_idx, tokens.topk_weights,
                tokens.num_tokens);
  }
}

std::vector<RankCall> rank_calls(const RunCase& run, Group& group,
                                 std::vector<std::vector<std::uint16_t>>& y) {
  std::vector<RankCall> calls;
  for (int i = 0; i < group.num_local_ranks(); ++i) {
    const int rank = group.layer(i).rank();
    const auto r = static_cast<std::size_t>(rank);
    const int tokens = tokens_of(run, rank).num_tokens;
    const auto values =
        static_cast<std::size_t>(tokens) * static_cast<std::size_t>(run.problem().hidden);
    y.emplace_back(values, kUnwritten);
    calls.push_back({.y = y.back().data(),
                     .num_tokens = tokens,
                     .weights = &run.weights.routed[r],
                     .shared = run.weights.shared.empty() ? nullptr : &run.weights.shared[r]});
  }
  return calls;
}

/// What each rank reports; nothing for ranks of other processes.
std::vector<std::string> faults_of(Group& group) {
  std::vector<std::string> faults(static_cast<std::size_t>(group.problem().ranks));
  for (int i = 0; i < group.num_local_ranks(); ++i) {
    try {
      (void)group.layer(i).check();
    } catch (const Error& error) {
      faults[static_cast<std::size_t>(group.layer(i).rank())] = error.what();
    }
  }
  return faults;
}

double timed_call(Group& group, std::span<const RankCall> calls, const ForwardOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  try {
    group.forward(calls, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::fault && error.code() != ErrorCode::system) throw;
    throw RunFault(error.code(), error.what(), faults_of(group));
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(end - start).count();
}

}  // namespace

long total_tokens(const RunCase& run) {
  long total = 0;
  for (const ref::RankTokens& rank : run.tokens) total += rank.num_tokens;
  return total;
}

KernelConfig wanted_config(const RunRequest& request, const RunCase& run) {
  KernelConfig config = request.block_rows > 0
                            ? config_for_block_rows(run.problem(), request.block_rows)
                            : choose_config(run.problem(), total_tokens(run));
  if (request.waves > 0) config.num_waves = request.waves;
  const std::string reason = why_invalid(run.problem(), config);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  return config;
}

ForwardOptions forward_options(const RunRequest& request, const RunCase& run,
                               const KernelConfig& config) {
  ForwardOptions options;
  options.global_num_tokens = total_tokens(run);
  options.num_sms = request.num_sms;
  options.reserved_sms = request.reserved_sms;
  options.deadline = request.deadline;
  options.config = &config;
  return options;
}

void report_first_call(Group& group, RunOutput& output) {
  for (int i = 0; i < group.num_local_ranks(); ++i) {
    const CallReport report = group.layer(i).check();
    output.rows_received.push_back(report.rows_received);
    if (i == 0) output.config = report.config;
  }
  const MemoryReport memory = group.layer(0).memory_report();
  output.memory_bytes = memory.symmetric_bytes + memory.local_bytes;
}

int RunOutput::differing_calls() const {
  return static_cast<int>(std::count(differs.begin(), differs.end(), 1));
}

RunOutput call_group(const RunRequest& request, const RunCase& run,
                     std::unique_ptr<SymmetricMemory> memory, Io& io) {
  const KernelConfig config = wanted_config(request, run);
  Group group(run.problem(), std::move(memory));
  stage_tokens(run, group);
  RunOutput output;
  output.expert_rows.assign(
      static_cast<std::size_t>(group.num_local_ranks()) * run.problem().experts_per_rank(), 0);
  ForwardOptions options = forward_options(request, run, config);
  options.recv_stats = output.expert_rows.data();
  Progress progress(io.err, io.err_is_terminal && !request.json, "calls", request.repeat);
  std::vector<RankCall> calls = rank_calls(run, group, output.y);
  output.times_us.push_back(timed_call(group, calls, options));
  output.differs.push_back(0);
  progress.advance();
  report_first_call(group, output);

  // Statistics are those of the first call alone.
  options.recv_stats = nullptr;
  std::vector<std::vector<std::uint16_t>> again;
  calls = rank_calls(run, group, again);
  for (int i = 1; i < request.repeat; ++i) {
    for (std::vector<std::uint16_t>& y : again) std::fill(y.begin(), y.end(), kUnwritten);
    output.times_us.push_back(timed_call(group, calls, options));
    output.differs.push_back(again == output.y ? 0 : 1);
    progress.advance();
  }
  return output;
}

std::chrono::nanoseconds join_deadline(const RunRequest& request) {
  return std::max<std::chrono::nanoseconds>(request.deadline, std::chrono::seconds(10));
}

RunOutput call_layer(const RunRequest& request, const RunCase& run, Io& io) {
  if (request.processes) return call_processes(request, run, io);
  const bool on_gpus = request.backend == Backend::cuda;
  const int ranks = run.problem().ranks;
  try {
    if (request.launcher) return call_launched(request, run, io);
    if (on_gpus) return call_cuda(request, run, cuda_memory(request, ranks), io);
    return call_group(request, run, make_memory(request, ranks), io);
  } catch (const RunFault&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::fault) throw;
    throw RunFault(error.code(), error.what(), {});
  }
}

}  // namespace megamoe::cli
