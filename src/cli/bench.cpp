#include <fstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/arguments.hpp"
#include "cli/bench_result.hpp"
#include "cli/run_files.hpp"
#include "cli/verbs.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr const char* kBenchExamples =
    "Examples:\n"
    "  megamoe bench --model flash --experts 64 --ranks 2\n"
    "  megamoe bench --model deepseek-v3 --experts 32 --tokens 1,8,128 --json --chart times.svg\n"
    "  megamoe bench --model flash --experts 64 --ranks 4 --virtual --routing skewed\n";

void write_chart(const std::string& path, const std::string& svg) {
  std::ofstream file(path, std::ios::binary);
  file << svg;
  file.close();
  if (!file)
    throw Error(ErrorCode::system, fmt::format("--chart = {}: the file cannot be written", path));
}

int execute_bench(const BenchRequest& request, Io& io) {
  if (request.chart) check_output_path("--chart", *request.chart);
  const BenchMeasurement measured = measure(request, io);
  if (request.chart) write_chart(*request.chart, bench_chart(request, measured));
  io.out << (request.json ? bench_json(request, measured) + "\n" : bench_text(request, measured));
  return kDone;
}

}  // namespace

int bench_main(const Arguments& arguments, Io& io, Depth depth) {
  CLI::App app("Times the layer on GPUs over token counts, beside the lower bound of its time.",
               "megamoe bench");
  app.footer(kBenchExamples);
  BenchFlags flags;
  add_bench_flags(app, flags);
  if (!parse_arguments(app, arguments, io)) return kDone;
  const BenchRequest request = resolve_bench(flags, arguments);
  return depth == Depth::validate ? kDone : execute_bench(request, io);
}

}  // namespace megamoe::cli
