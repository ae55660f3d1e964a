#include <array>
#include <fstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/arguments.hpp"
#include "cli/numbers.hpp"
#include "cli/run_files.hpp"
#include "cli/table.hpp"
#include "cli/trace_request.hpp"
#include "cli/verbs.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr const char* kFooter =
    "Open the JSON in ui.perfetto.dev or chrome://tracing, the SVG in a browser; waits are red.\n"
    "The clocks of different GPUs are set to the same zero at each one's first event.\n"
    "Examples:\n"
    "  megamoe trace --model flash --experts 64 --tokens 8 --svg call.svg\n"
    "  megamoe trace --model flash --experts 64 --ranks 2 --virtual --perfetto call.json\n";

struct TraceFlags {
  RunFlags run;
  std::optional<std::string> perfetto, svg, events;
};

void add_trace_flags(CLI::App& app, TraceFlags& flags) {
  add_problem_flags(app, flags.run.problem, run_defaults());
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* value,
                       const char* help) { add_text(app, flag, text, value, help)->group("Call"); };
  add("--routing", flags.run.routing, "R", kRoutingHelp);
  add("--seed", flags.run.seed, "S", "Seed of everything generated (default 1)");
  app.add_flag("--virtual", flags.run.virtual_ranks, "All ranks on one GPU, in one launch")
      ->group("Call");
  add("--num-sms", flags.run.num_sms, "N", "Most SMs to use (default 0: all)");
  add("--reserved-sms", flags.run.reserved_sms, "N", "SMs left free (default 0)");
  add("--block-rows", flags.run.block_rows, "N", "Rows per block: 8, 16, 32, 64 or 128");
  add("--deadline", flags.run.deadline, "SECONDS", "Longest wait inside a call (default 30)");
  add("--events", flags.events, "N", "Most events that one warp records (default 1024)");
  add("--perfetto", flags.perfetto, "FILE", "Where to write the trace for Perfetto");
  add("--svg", flags.svg, "FILE", "Where to write the timeline of every CTA");
  app.add_flag("--json", flags.run.json, "Print one JSON object");
}

TraceRequest resolve_trace(const TraceFlags& flags) {
  if (!flags.perfetto && !flags.svg)
    throw Error(ErrorCode::invalid_argument, "give --perfetto FILE, --svg FILE or both");
  if (flags.perfetto && flags.perfetto == flags.svg) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--perfetto and --svg are the same file: {}", *flags.svg));
  }
  return {.run = resolve_run(flags.run),
          .perfetto = flags.perfetto,
          .svg = flags.svg,
          .capacity = static_cast<int>(
              parse_integer("--events", flags.events.value_or("1024"), 16, 65536))};
}

void write_file(const char* flag, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorCode::system, fmt::format("{} = {}: the file cannot be written", flag, path));
}

/// Sums over all warps, but not over the CTAs' own lists, which span those of their warps.
std::array<double, kNumActivities> activity_us(const TracedCall& call) {
  std::array<double, kNumActivities> us{};
  for (const TraceList& list : call.lists) {
    if (role(list) == "CTA") continue;
    for (const Span& span : spans(list))
      us[static_cast<std::size_t>(span.activity)] +=
          static_cast<double>(span.end_ns - span.begin_ns) * 1e-3;
  }
  return us;
}

std::size_t num_events(const TracedCall& call) {
  std::size_t events = 0;
  for (const TraceList& list : call.lists) events += list.events.size();
  return events;
}

double length_us(const TracedCall& call) {
  const TimeRange range = time_range(call);
  return static_cast<double>(range.last_ns - range.first_ns) * 1e-3;
}

std::string trace_text(const TracedCall& call) {
  Table table({"activity", "warp us"});
  const auto us = activity_us(call);
  for (int i = 0; i < kNumActivities; ++i) {
    const double value = us[static_cast<std::size_t>(i)];
    if (value > 0) table.add({name(static_cast<Activity>(i)), short_number(value)});
  }
  std::string text =
      fmt::format("{}\n{} events of {} warps and CTAs in {} us\n", call.title, num_events(call),
                  call.lists.size(), short_number(length_us(call)));
  if (call.full_lists > 0)
    text += fmt::format("{} of them were full: --events takes more\n", call.full_lists);
  return text + table.text();
}

std::string trace_json(const TracedCall& call) {
  nlohmann::json activities = nlohmann::json::object();
  const auto us = activity_us(call);
  for (int i = 0; i < kNumActivities; ++i)
    activities[name(static_cast<Activity>(i))] = us[static_cast<std::size_t>(i)];
  return nlohmann::json({{"ok", true},
                         {"title", call.title},
                         {"events", num_events(call)},
                         {"lists", call.lists.size()},
                         {"full_lists", call.full_lists},
                         {"length_us", length_us(call)},
                         {"warp_us", activities}})
             .dump() +
         "\n";
}

}  // namespace

int trace_main(const Arguments& arguments, Io& io, Depth depth) {
  CLI::App app("Runs one call on GPUs with timestamps taken inside the kernel.", "megamoe trace");
  app.footer(kFooter);
  TraceFlags flags;
  add_trace_flags(app, flags);
  if (!parse_arguments(app, arguments, io)) return kDone;
  const TraceRequest request = resolve_trace(flags);
  if (depth == Depth::validate) return kDone;
  if (request.perfetto) check_output_path("--perfetto", *request.perfetto);
  if (request.svg) check_output_path("--svg", *request.svg);
  const TracedCall call = trace_call(request, io);
  if (request.perfetto) write_file("--perfetto", *request.perfetto, perfetto_json(call));
  if (request.svg) write_file("--svg", *request.svg, timeline_svg(call));
  io.out << (request.run.json ? trace_json(call) : trace_text(call));
  return kDone;
}

}  // namespace megamoe::cli
