#include "cli/doctor.hpp"

#include <CLI/CLI.hpp>

#include "cli/arguments.hpp"
#include "cli/verbs.hpp"

namespace megamoe::cli {

MachineFacts examine_machine(bool measure) {
  MachineFacts facts;
  examine_host(facts);
  examine_gpus(facts, measure);
  return facts;
}

int doctor_main(const Arguments& arguments, Io& io, Depth depth) {
  CLI::App app("Looks at this machine and says whether the layer will run on its GPUs.",
               "megamoe doctor");
  app.footer(
      "Exit status: 0 it will run, 1 something is missing; the advice names it.\n"
      "Examples:\n  megamoe doctor\n  megamoe doctor --json --no-measure\n");
  bool json = false, no_measure = false;
  app.add_flag("--no-measure", no_measure, "Measure no bandwidth and latency between GPUs");
  app.add_flag("--json", json, "Print one JSON object");
  if (!parse_arguments(app, arguments, io)) return kDone;
  if (depth == Depth::validate) return kDone;
  const MachineFacts facts = examine_machine(!no_measure);
  io.out << (json ? doctor_json(facts) + "\n" : doctor_text(facts));
  return advice(facts).empty() ? kDone : kCheckFailed;
}

}  // namespace megamoe::cli
