#pragma once

#include <optional>
#include <vector>

#include "cli/io.hpp"
#include "cli/run_call.hpp"
#include "cli/run_case.hpp"
#include "cli/run_request.hpp"
#include "ref/gpu_bounds.hpp"

namespace megamoe::cli {

/// How a run compares with the reference.
struct RunCheck {
  long rows_checked = 0;  ///< rows of y compared; 0: none asked for, or no tokens
  double diff = 0;        ///< see ref::Difference
  double diff_bound = 0;  ///< of the precision, or of this case on a GPU
  double worst_row = 0;   ///< relative L2 of the worst row
  double worst_row_bound = 0;
  std::optional<ref::Row> worst_at;
  long same_non_finite = 0;   ///< see ref::Difference
  long wrong_non_finite = 0;  ///< the same
  long unwritten = 0;         ///< values of y, of all rows, that the first call left as they were
  /// With the model of the tensor core, for FP8 on a GPU.
  std::optional<ref::Agreement> agreement;
  bool received_equal = true;  ///< rows per expert and per rank are the reference's

  [[nodiscard]] bool ok() const {
    return received_equal && unwritten == 0 &&
           (rows_checked == 0 || (diff <= diff_bound && worst_row <= worst_row_bound)) &&
           (!agreement || agreement->ok());
  }
};

/// Compares what `spec` asks for. Statistics are always compared.
RunCheck check_run(const RunRequest& request, const RunCase& run, const RunOutput& output, Io& io);

/// The rows that a check compares: all, or a sample that depends on the seed only, without repeats
/// and in order.
std::vector<ref::Row> rows_to_check(const CheckSpec& spec, double flops,
                                    const std::vector<ref::Row>& all, std::uint64_t seed);

}  // namespace megamoe::cli
