#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/io.hpp"
#include "cli/run_case.hpp"
#include "cli/run_request.hpp"
#include "config/kernel_config.hpp"
#include "megamoe/error.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {

/// What y is filled with before each call on the CPU and, as all bytes alike, on a GPU: NaNs that
/// no call writes there, whatever its input (quiet bit clear; not a GPU's one NaN, 0x7fff).
inline constexpr std::uint16_t kUnwritten = 0xffbf;
inline constexpr std::uint16_t kUnwrittenOnGpu = 0xffff;

/// What the calls of a run gave.
struct RunOutput {
  std::vector<std::vector<std::uint16_t>> y;  ///< of the first call: [ranks], BF16 [tokens, hidden]
  std::vector<std::int64_t> rows_received;    ///< [ranks]
  std::vector<std::int64_t> expert_rows;      ///< [experts], as the layers' statistics count them
  /// One per call: on the CPU as the host sees it, on GPUs by events.
  std::vector<double> times_us;
  std::vector<std::uint8_t> differs;  ///< one per call: 1 if its y is not the first one's
  std::size_t memory_bytes = 0;       ///< symmetric and local, per rank
  std::string config;                 ///< that rank 0 ran

  [[nodiscard]] int differing_calls() const;
};

/// Calls that did not finish: the message says why, `ranks` what each of the ranks reports, nothing
/// for one without a fault.
class RunFault : public Error {
 public:
  RunFault(ErrorCode code, const std::string& message, std::vector<std::string> ranks)
      : Error(code, message), ranks_(std::move(ranks)) {}
  [[nodiscard]] const std::vector<std::string>& ranks() const { return ranks_; }

 private:
  std::vector<std::string> ranks_;
};

/// Tokens of all ranks.
long total_tokens(const RunCase& run);

/// The configuration that the flags ask for. Throws Error if it cannot run the problem.
KernelConfig wanted_config(const RunRequest& request, const RunCase& run);

/// What the flags ask of each call; `config` is to outlive it.
ForwardOptions forward_options(const RunRequest& request, const RunCase& run,
                               const KernelConfig& config);

/// Notes what the first call of all local ranks did.
void report_first_call(Group& group, RunOutput& output);

/// Makes a Group, or one in each of several processes, stages the tokens and calls it `repeat`
/// times. Throws Error, RunFault for a call that does not finish.
RunOutput call_layer(const RunRequest& request, const RunCase& run, Io& io);

/// The part of a run that the ranks in this process make: y, counts and statistics of these alone.
RunOutput call_group(const RunRequest& request, const RunCase& run,
                     std::unique_ptr<SymmetricMemory> memory, Io& io);

/// The run with each rank in a process of its own.
RunOutput call_processes(const RunRequest& request, const RunCase& run, Io& io);

/// The run with each rank in a process that a launcher has started, this one among them. Every
/// process gets the output of all ranks.
RunOutput call_launched(const RunRequest& request, const RunCase& run, Io& io);

/// Longest time for a step of joining a group: processes start at different times, whatever the
/// deadline of a call.
std::chrono::nanoseconds join_deadline(const RunRequest& request);

}  // namespace megamoe::cli
