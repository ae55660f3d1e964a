#pragma once

#include <span>
#include <string_view>

#include "cli/io.hpp"

namespace megamoe::cli {

/// One verb of the program. `main` gets the arguments after the verb and returns an exit status;
/// what it cannot use it refuses with megamoe::Error.
struct Verb {
  std::string_view name;
  std::string_view summary;
  int (*main)(const Arguments& arguments, Io& io, Depth depth);
};

std::span<const Verb> verbs();

/// Runs `megamoe ARGUMENTS...`: finds the verb, and turns an Error into one line on `io.err` and an
/// exit status.
int dispatch(const Arguments& arguments, Io& io, Depth depth = Depth::execute);

/// The text with control characters spelled as \xNN, so that it stays on one line.
std::string one_line(std::string_view text);

// The verbs, each in the file of its name.
int run_main(const Arguments& arguments, Io& io, Depth depth);
int bench_main(const Arguments& arguments, Io& io, Depth depth);
int plan_main(const Arguments& arguments, Io& io, Depth depth);
int doctor_main(const Arguments& arguments, Io& io, Depth depth);
int trace_main(const Arguments& arguments, Io& io, Depth depth);

}  // namespace megamoe::cli
