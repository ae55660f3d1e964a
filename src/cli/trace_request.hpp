#pragma once

#include <optional>
#include <string>

#include "cli/io.hpp"
#include "cli/run_request.hpp"
#include "cli/trace_timeline.hpp"

namespace megamoe::cli {

/// What `trace` is asked for, all values checked.
struct TraceRequest {
  RunRequest run;
  std::optional<std::string> perfetto;  ///< where the JSON goes
  std::optional<std::string> svg;
  int capacity = 0;  ///< events that one warp may record
};

/// Runs the call twice and records the second. Throws Error(unsupported), with the reason, where
/// there are not enough GPUs for it.
TracedCall trace_call(const TraceRequest& request, Io& io);

}  // namespace megamoe::cli
