#include "cli/run_check.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "cli/progress.hpp"
#include "ref/reference.hpp"

namespace megamoe::cli {
namespace {

// For sums in FP32, which the CPU backend has: off by 2^-24 per term, they flip few codes of h.
// BF16 has only rounding. Sums of a GPU's FP8 tensor core have bounds of their own:
// ref/gpu_bounds.hpp.
constexpr double kQuantisedBound = 3e-5;
constexpr double kBf16Bound = 1e-5;
constexpr double kWorstRowBound = 2e-2;

/// Rows that the reference computes at once, between two steps of the progress bar.
constexpr std::size_t kRowsAtOnce = 1024;

bool same_statistics(const RunCase& run, const RunOutput& output) {
  const std::vector<std::int64_t> expected = ref::received_rows_per_expert(run.reference_input());
  if (output.expert_rows != expected) return false;
  const auto local = static_cast<std::ptrdiff_t>(run.problem().experts_per_rank());
  for (std::size_t r = 0; r < output.rows_received.size(); ++r) {
    const auto first = expected.begin() + static_cast<std::ptrdiff_t>(r) * local;
    const std::int64_t sum = std::accumulate(first, first + local, std::int64_t{0});
    if (output.rows_received[r] != sum) return false;
  }
  return true;
}

/// What the reference gives for the rows that are compared.
struct Expected {
  std::vector<std::uint16_t> exact;
  std::optional<ref::TensorCoreOutput> model;  ///< for FP8 on a GPU
};

Expected reference_rows(const RunRequest& request, const RunCase& run,
                        std::span<const ref::Row> rows, Io& io) {
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const ref::Input input = run.reference_input();
  Expected expected;
  if (request.backend == Backend::cuda && run.problem().precision == Precision::fp8)
    expected.model.emplace();
  Progress progress(io.err, io.err_is_terminal && !request.json, "reference rows",
                    static_cast<std::int64_t>(rows.size()));
  const auto append = [](auto& to, const auto& part) {
    to.insert(to.end(), part.begin(), part.end());
  };
  for (std::size_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    const auto part = rows.subspan(first, std::min(kRowsAtOnce, rows.size() - first));
    append(expected.exact, ref::run_rows(input, run.weights, part, threads));
    if (expected.model) {
      const auto model = ref::run_rows_on_tensor_core(input, run.weights, part, threads);
      append(expected.model->y, model.y);
      append(expected.model->doubt, model.doubt);
      append(expected.model->size, model.size);
    }
    progress.advance(static_cast<std::int64_t>(part.size()));
  }
  return expected;
}

std::vector<std::uint16_t> output_rows(const RunOutput& output, std::span<const ref::Row> rows,
                                       int hidden) {
  std::vector<std::uint16_t> y;
  for (const ref::Row& row : rows) {
    const auto& rank = output.y[static_cast<std::size_t>(row.rank)];
    const auto begin = rank.begin() + static_cast<std::ptrdiff_t>(row.token) * hidden;
    y.insert(y.end(), begin, begin + hidden);
  }
  return y;
}

}  // namespace

std::vector<ref::Row> rows_to_check(const CheckSpec& spec, double flops,
                                    const std::vector<ref::Row>& all, std::uint64_t seed) {
  std::size_t wanted = all.size();
  switch (spec.kind) {
    case CheckSpec::Kind::none:
      wanted = 0;
      break;
    case CheckSpec::Kind::full:
      break;
    case CheckSpec::Kind::rows:
      wanted = std::min(wanted, static_cast<std::size_t>(spec.rows));
      break;
    case CheckSpec::Kind::automatic:
      if (flops > CheckSpec::kManyFlops) {
        wanted = std::min(wanted, static_cast<std::size_t>(CheckSpec::kManyRows));
      }
      break;
  }
  std::vector<ref::Row> rows;
  std::mt19937_64 random(seed);
  std::sample(all.begin(), all.end(), std::back_inserter(rows), wanted, random);
  return rows;
}

RunCheck check_run(const RunRequest& request, const RunCase& run, const RunOutput& output, Io& io) {
  RunCheck check;
  check.diff_bound = run.problem().precision == Precision::bf16 ? kBf16Bound : kQuantisedBound;
  check.worst_row_bound = kWorstRowBound;
  check.received_equal = same_statistics(run, output);
  const std::uint16_t unwritten = request.backend == Backend::cuda ? kUnwrittenOnGpu : kUnwritten;
  for (const auto& y_of_rank : output.y)
    check.unwritten += std::count(y_of_rank.begin(), y_of_rank.end(), unwritten);
  const std::vector<ref::Row> rows =
      rows_to_check(request.check, run.flops(), ref::all_rows(run.reference_input()), request.seed);
  if (rows.empty()) return check;
  const int hidden = run.problem().hidden;
  const Expected expected = reference_rows(request, run, rows, io);
  const std::vector<std::uint16_t> y = output_rows(output, rows, hidden);
  const ref::Difference difference = ref::compare(y, expected.exact, hidden);
  if (expected.model) {
    const ref::Bounds bounds = ref::bounds_on_gpu(*expected.model, expected.exact, hidden);
    check.diff_bound = bounds.diff;
    check.worst_row_bound = bounds.worst_row;
    check.agreement = ref::agree(y, *expected.model, hidden);
  }
  check.rows_checked = static_cast<long>(rows.size());
  check.diff = difference.diff;
  check.worst_row = difference.worst_row_relative_l2;
  check.same_non_finite = difference.same_non_finite;
  check.wrong_non_finite = difference.wrong_non_finite;
  if (difference.worst_row >= 0) {
    check.worst_at = rows[static_cast<std::size_t>(difference.worst_row)];
  }
  return check;
}

}  // namespace megamoe::cli
