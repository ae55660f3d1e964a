// What a build without CUDA answers to `trace`.
#include "cli/trace_request.hpp"
#include "host/devices.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {

TracedCall trace_call(const TraceRequest& /*request*/, Io& /*io*/) {
  throw Error(ErrorCode::unsupported, "tracing needs GPUs: " + find_devices().reason);
}

}  // namespace megamoe::cli
