#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench_request.hpp"

namespace megamoe::cli {

/// What was measured for one token count. Microseconds of device time, by events: for each call the
/// longest over the GPUs.
struct BenchTimes {
  int tokens = 0;
  std::vector<double> fused_us;         ///< [calls]
  std::vector<double> staged_us;        ///< [calls] staging and the fused kernel
  double skew_us = 0;                   ///< most between the first and the last GPU's release
  std::string config;                   ///< that rank 0 ran
  std::vector<double> unfused_us = {};  ///< [calls] staging and the unfused chain; empty: none
  double unfused_diff = 0;              ///< of the chain's sampled rows from the reference
};

struct BenchMeasurement {
  std::string machine;  ///< the GPUs' name, one for all
  std::vector<BenchTimes> rows;
  std::string unfused_note = {};  ///< the chain's libraries, or what is missing for it
};

/// Times the request on this machine's GPUs. Throws Error(unsupported), with the reason, where
/// there are not enough that can.
BenchMeasurement measure(const BenchRequest& request, Io& io);

/// One row of the result.
struct BenchRow {
  int tokens = 0;
  double time_us = 0;    ///< median over calls
  double spread_us = 0;  ///< between the 10th and the 90th percentile
  double staged_us = 0;  ///< median, staging included
  double skew_us = 0;
  std::optional<double> unfused_us;     ///< median, staging included
  std::optional<double> unfused_diff;   ///< see BenchTimes
  std::optional<double> gain;           ///< unfused_us / staged_us
  std::optional<double> bound_us;       ///< median over calls, each of its routing's busiest GPU
  std::optional<double> mean_bound_us;  ///< of the mean load, which uniform routing only approaches
  std::optional<double> fraction;       ///< bound_us / time_us
  // Of the busiest GPU of the first routing.
  double tflops = 0;
  double hbm_gbs = 0;
  double nvlink_gbs = 0;
  std::string config;
};

/// The rates that bounds take: --gpu's, else those that the machine's name tells, else none.
const Gpu* rates_for(const BenchRequest& request, const std::string& machine);

/// Makes the rows of a measurement.
std::vector<BenchRow> bench_rows(const BenchRequest& request, const BenchMeasurement& measured);

/// The work of the busiest GPU: of a rank, or of all virtual ranks together.
LayerWork busiest_work(const BenchRequest& request, const std::vector<RankLoad>& loads,
                       const GpuRates& rates);

/// Loads of one row's routing with one seed.
std::vector<RankLoad> loads_of(const BenchRequest& request, int tokens, std::uint64_t seed);

/// Percentile 0..100 with linear interpolation; 0 of no values.
double percentile(std::vector<double> values, double percent);

/// As product documents promise it: a list, one object per row.
std::string bench_json(const BenchRequest& request, const BenchMeasurement& measured);
/// For people.
std::string bench_text(const BenchRequest& request, const BenchMeasurement& measured);
/// Times and bound over tokens, both axes logarithmic.
std::string bench_chart(const BenchRequest& request, const BenchMeasurement& measured);

}  // namespace megamoe::cli
