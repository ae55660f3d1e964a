#include "cli/bench_result.hpp"
#include "cli/run_backend.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {

BenchMeasurement measure(const BenchRequest& request, Io& /*io*/) {
  throw Error(ErrorCode::unsupported,
              "timing needs GPUs: " +
                  why_too_few_gpus(find_devices(), request.virtual_ranks, request.problem()));
}

}  // namespace megamoe::cli
