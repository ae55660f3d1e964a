#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/arguments.hpp"
#include "cli/run_backend.hpp"
#include "cli/run_call.hpp"
#include "cli/run_case.hpp"
#include "cli/run_check.hpp"
#include "cli/run_files.hpp"
#include "cli/run_request.hpp"
#include "cli/table.hpp"
#include "cli/verbs.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr const char* kRunExamples =
    "Examples:\n"
    "  megamoe run --model qwen3-30b-a3b --ranks 4 --virtual --tokens 0,8,48,192\n"
    "  megamoe run --hidden 512 --intermediate 256 --experts 16 --top-k 4 --precision bf16 --json\n"
    "  megamoe run --checkpoint model/ --layer 3 --input tokens.safetensors --output "
    "y.safetensors\n"
    "\n"
    "JSON: diff, worst_row and those of the model are null where no row was compared (rows_checked "
    "is 0)\nand where non_finite_wrong is not 0: values of y that are NaN or Inf, or should be, "
    "unlike the\nreference's; non_finite_same counts those that are as in the reference. "
    "unwritten: "
    "values of y that\nthe call left out. bitwise_repeatable is null for one call.\n";

struct Run {
  RunRequest request;
  RunCase data;
  RunOutput output;
  RunCheck check;

  [[nodiscard]] bool ok() const { return check.ok() && output.differing_calls() == 0; }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<int> tokens_of(const RunCase& run) {
  std::vector<int> tokens;
  tokens.reserve(run.tokens.size());
  for (const ref::RankTokens& rank : run.tokens) tokens.push_back(rank.num_tokens);
  return tokens;
}

/// What was run.
nlohmann::json case_json(const Run& run) {
  const Problem& p = run.data.problem();
  return {{"backend", name(run.request.backend)},
          {"ranks", p.ranks},
          {"tokens", tokens_of(run.data)},
          {"precision", name(p.precision)},
          {"activation", name(p.activation.kind)},
          {"routing", ref::name(run.request.routing)},
          {"seed", run.request.seed},
          {"notes", run.data.shape.notes}};
}

/// JSON has no infinity.
nlohmann::json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

/// The footer of --help says when a field is null.
nlohmann::json run_json(const Run& run) {
  nlohmann::json json = case_json(run);
  json.update({{"ok", run.ok()},
               {"config", run.output.config},
               {"rows_checked", run.check.rows_checked},
               {"diff", nullptr},
               {"worst_row", nullptr},
               {"unwritten", run.check.unwritten},
               {"received", run.output.rows_received},
               {"received_ok", run.check.received_equal},
               {"bitwise_repeatable", nullptr},
               {"memory_bytes", run.output.memory_bytes},
               {"time_us", median(run.output.times_us)}});
  if (run.check.rows_checked > 0) {
    json["diff"] = finite_or_null(run.check.diff);
    json["worst_row"] = finite_or_null(run.check.worst_row);
    json["non_finite_same"] = run.check.same_non_finite;
    json["non_finite_wrong"] = run.check.wrong_non_finite;
    json["diff_bound"] = run.check.diff_bound;
    json["worst_row_bound"] = run.check.worst_row_bound;
  }
  if (run.check.agreement) {
    json["model_diff"] = finite_or_null(run.check.agreement->diff);
    json["model_diff_bound"] = run.check.agreement->diff_bound;
    json["model_row_of_allowed"] = finite_or_null(run.check.agreement->worst_row_of_allowed);
  }
  if (run.request.repeat > 1) json["bitwise_repeatable"] = run.output.differing_calls() == 0;
  return json;
}

/// A run that did not finish: why, and what each rank reports, null for one without a fault.
nlohmann::json fault_json(const Run& run, const RunFault& fault) {
  nlohmann::json json = case_json(run);
  json["ok"] = false;
  json["fault"] = fault.what();
  json["rank_faults"] = nlohmann::json::array();
  for (const std::string& text : fault.ranks())
    json["rank_faults"].push_back(text.empty() ? nlohmann::json() : nlohmann::json(text));
  return json;
}

void report_faults(const RunFault& fault, Io& io) {
  for (const std::string& text : fault.ranks()) {
    if (!text.empty() && text != fault.what()) io.err << one_line(text) << "\n";
  }
}

std::string head_text(const Run& run) {
  const Problem& p = run.data.problem();
  std::string text = fmt::format(
      "{}: hidden {}, intermediate {}, {} experts, top-{}, {}; {} {}rank{} on {}\n",
      run.data.shape.model ? run.data.shape.model->name : "custom", p.hidden, p.intermediate,
      p.experts, p.top_k, name(p.precision), p.ranks, run.request.virtual_ranks ? "virtual " : "",
      p.ranks == 1 ? "" : "s", name(run.request.backend));
  for (const std::string& note : run.data.shape.notes) text += fmt::format("note: {}\n", note);
  return text + fmt::format("configuration: {}\n\n", run.output.config);
}

std::string check_text(const Run& run) {
  const RunCheck& check = run.check;
  std::string text = fmt::format("received   {} the reference's counts\n",
                                 check.received_equal ? "equal to" : "DIFFERENT FROM");
  if (check.unwritten > 0) text += fmt::format("unwritten  {} VALUES of y\n", check.unwritten);
  if (check.rows_checked == 0) return text + "reference  no row compared\n";
  text += fmt::format(
      "reference  {} rows: diff {:.2e} (bound {:.1e}), worst row {:.2e} (bound {:.1e})",
      check.rows_checked, check.diff, check.diff_bound, check.worst_row, check.worst_row_bound);
  if (check.worst_at && check.worst_row > 0) {
    text += fmt::format(" at rank {} token {}", check.worst_at->rank, check.worst_at->token);
  }
  if (check.same_non_finite + check.wrong_non_finite > 0) {
    text += fmt::format("\nNaN, Inf   {} values, as in the reference{}", check.same_non_finite,
                        check.wrong_non_finite == 0
                            ? ""
                            : fmt::format("; {} that are NOT", check.wrong_non_finite));
  }
  if (const auto& model = check.agreement) {
    text += fmt::format(
        "\nmodel      of the tensor core: diff {:.2e} (bound {:.1e}), worst row at {:.2f} of what "
        "is "
        "allowed",
        model->diff, model->diff_bound, model->worst_row_of_allowed);
  }
  return text + "\n";
}

std::string run_text(const Run& run) {
  Table table({"rank", "tokens", "rows received"});
  const std::vector<int> tokens = tokens_of(run.data);
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    table.add({std::to_string(r), std::to_string(tokens[r]),
               std::to_string(run.output.rows_received[r])});
  }
  std::string text = head_text(run) + table.text() + "\n" + check_text(run);
  if (run.request.repeat > 1) {
    text += fmt::format("repeats    {} of {} later calls differ\n", run.output.differing_calls(),
                        run.request.repeat - 1);
  }
  text += fmt::format("memory     {} per rank\ntime       {} us, median of {}\n{}\n",
                      bytes_text(static_cast<double>(run.output.memory_bytes)),
                      short_number(median(run.output.times_us)), run.output.times_us.size(),
                      run.ok() ? "ok" : "FAILED");
  return text;
}

int execute_run(const RunRequest& request, Io& io) {
  if (request.output) check_output_path("--output", *request.output);
  Run run{.request = request, .data = make_run_case(request, io), .output = {}, .check = {}};
  run.request.backend = choose_backend(request, run.data.problem());
  // Waits on the CPU are for products that may take minutes.
  if (run.request.backend == Backend::cpu && !request.deadline_given)
    run.request.deadline = std::chrono::minutes(10);
  try {
    run.output = call_layer(run.request, run.data, io);
  } catch (const RunFault& fault) {
    if (request.json)
      io.out << fault_json(run, fault).dump(2) << "\n";
    else
      report_faults(fault, io);
    throw;
  }
  // Every process of a launcher has all output; one of them tells.
  if (request.launcher && request.launcher->join.rank != 0) return kDone;
  run.check = check_run(run.request, run.data, run.output, io);
  if (request.output) write_output(*request.output, run.data.shape, run.output.y);
  io.out << (request.json ? run_json(run).dump(2) + "\n" : run_text(run));
  return run.ok() ? kDone : kCheckFailed;
}

}  // namespace

int run_main(const Arguments& arguments, Io& io, Depth depth) {
  CLI::App app("Runs one layer and compares y with the reference.", "megamoe run");
  app.footer(kRunExamples);
  RunFlags flags;
  add_run_flags(app, flags);
  if (!parse_arguments(app, arguments, io)) return kDone;
  const RunRequest request = resolve_run(flags);
  return depth == Depth::validate ? kDone : execute_run(request, io);
}

}  // namespace megamoe::cli
