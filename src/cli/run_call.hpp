#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/io.hpp"
#include "cli/run_case.hpp"
#include "cli/run_request.hpp"
#include "config/kernel_config.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {

/// What the calls of a run gave.
struct RunOutput {
  std::vector<std::vector<std::uint16_t>> y;  ///< of the first call: [ranks], BF16 [tokens, hidden]
  std::vector<std::int64_t> rows_received;    ///< [ranks]
  std::vector<std::int64_t> expert_rows;      ///< [experts], as the layers' statistics count them
  std::vector<double>
      times_us;             ///< one per call: on the CPU as the host sees it, on GPUs by events
  int differing_calls = 0;  ///< later calls whose y was not the first one's
  std::size_t memory_bytes = 0;  ///< symmetric and local, per rank
  std::string config;            ///< that rank 0 ran
};

/// Tokens of all ranks.
long total_tokens(const RunCase& run);

/// The configuration that the flags ask for. Throws Error if it cannot run the problem.
KernelConfig wanted_config(const RunRequest& request, const RunCase& run);

/// Notes what the first call of all local ranks did.
void report_first_call(Group& group, RunOutput& output);

/// Makes a Group, stages the tokens and calls it `repeat` times. Throws Error, code fault included.
RunOutput call_layer(const RunRequest& request, const RunCase& run, Io& io);

}  // namespace megamoe::cli
