#include "cli/verbs.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/suggest.hpp"
#include "megamoe/error.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

constexpr std::array<Verb, 5> kVerbs = {{
    {"run", "runs one layer and compares its output with the reference", run_main},
    {"bench", "times the layer on GPUs over token counts", bench_main},
    {"plan", "memory, bytes, operations and the lower bound of the time; needs no GPU", plan_main},
    {"doctor", "looks at this machine: what will run, and what is missing", doctor_main},
    {"trace", "runs one call with timestamps inside the kernel, and draws it", trace_main},
}};

std::string usage() {
  std::string text =
      "megamoe: an expert-parallel Mixture-of-Experts layer in one kernel launch\n"
      "Usage: megamoe VERB [FLAGS]\n\nVerbs:\n";
  for (const Verb& verb : kVerbs) text += fmt::format("  {:<8}{}\n", verb.name, verb.summary);
  text +=
      "\n'megamoe VERB --help' lists the flags of a verb; --version prints the version.\n"
      "Exit status: 0 done, 1 a check failed, 2 bad usage or input.\n";
  return text;
}

const Verb& find_verb(std::string_view name) {
  const auto* const it =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return v.name == name; });
  if (it != kVerbs.end()) return *it;
  std::vector<std::string_view> names;
  names.reserve(std::size(kVerbs));
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown verb '{}'{}", name, suggestion(name, names)));
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_file:
    case ErrorCode::unsupported:
      return kBadUsage;
    case ErrorCode::disagreement:
    case ErrorCode::fault:
    case ErrorCode::system:
      break;
  }
  return kCheckFailed;
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    line += control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return line;
}

int dispatch(const Arguments& arguments, Io& io, Depth depth) {
  if (arguments.empty()) {
    io.err << usage();
    return kBadUsage;
  }
  const std::string& first = arguments[0];
  if (first == "--help" || first == "-h") {
    io.out << usage();
    return kDone;
  }
  if (first == "--version") {
    io.out << "megamoe " << version() << "\n";
    return kDone;
  }
  std::string speaker = "megamoe";
  try {
    const Verb& verb = find_verb(first);
    speaker += fmt::format(" {}", verb.name);
    return verb.main({arguments.begin() + 1, arguments.end()}, io, depth);
  } catch (const Error& error) {
    io.err << speaker << ": " << one_line(error.what()) << "\n";
    return exit_status(error.code());
  }
}

}  // namespace megamoe::cli
