#include "cli/plan.hpp"

#include <algorithm>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/arguments.hpp"
#include "cli/suggest.hpp"
#include "cli/table.hpp"
#include "cli/verbs.hpp"
#include "layout/local_layout.hpp"
#include "layout/map.hpp"
#include "layout/symmetric_layout.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr const char* kPlanExamples =
    "Examples:\n"
    "  megamoe plan --model deepseek-v3 --gpu H200 --ranks 8\n"
    "  megamoe plan --model kimi-k2 --gpu B200 --ranks 64 --precision mxfp4 --tokens 1,64,4096\n"
    "  megamoe plan --hidden 4096 --intermediate 2048 --experts 64 --top-k 6 --ranks 2 --map\n";

ProblemDefaults plan_defaults() {
  return {
      .ranks = 8,
      .tokens = "1,8,32,128,512,2048,8192",
      .tokens_help = "Tokens per rank; a row for each count (default 1,8,32,128,512,2048,8192)"};
}

void check_precision(Shape& shape, const Gpu& gpu) {
  Precision& precision = shape.problem.precision;
  if (gpu.blackwell && precision == Precision::mxfp4) precision = Precision::mxfp8_mxfp4;
  if (!gpu.blackwell && precision == Precision::mxfp8_mxfp4) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{} cannot run mxfp8_mxfp4; the nearest that it runs is mxfp4", gpu.name));
  }
  if (gpu.blackwell && precision == Precision::fp8) {
    shape.notes.push_back(fmt::format(
        "there is no fp8 kernel for {}, only the bound; it runs mxfp4 and bf16", gpu.name));
  }
}

void note_limits(Shape& shape, const Gpu& gpu) {
  if (gpu.practical_is_assumed) {
    shape.notes.push_back(
        fmt::format("the practical rates of {} are assumed, not measured", gpu.name));
  }
  if (shape.problem.ranks > gpu.nvlink_ranks) {
    shape.notes.push_back(fmt::format(
        "{} ranks are more than the {} {} GPUs that share an NVLink domain; the kernel needs one "
        "domain",
        shape.problem.ranks, gpu.nvlink_ranks, gpu.name));
  }
}

nlohmann::json config_json(const KernelConfig& c) {
  return {{"family", c.family == Family::decode ? "decode" : "prefill"},
          {"block_rows", c.block_rows},
          {"l1_tile_channels", c.l1_tile_channels},
          {"l2_tile_channels", c.l2_tile_channels},
          {"pull_rows", c.pull_rows},
          {"route_tokens", c.route_tokens},
          {"sum_tokens", c.sum_tokens},
          {"num_waves", c.num_waves},
          {"group_blocks", c.group_blocks},
          {"lag_blocks", c.lag_blocks}};
}

nlohmann::json row_json(const Plan& plan, const PlanRow& row) {
  const Problem& p = plan.shape.problem;
  const LayerWork& w = row.work;
  const nlohmann::json bytes = {{"weights", w.weight_bytes},
                                {"pool", w.pool_bytes},
                                {"act", w.act_bytes},
                                {"combine", w.combine_bytes},
                                {"y", w.y_bytes},
                                {"hbm", w.hbm_bytes()},
                                {"nvlink_dispatch", w.dispatch_bytes},
                                {"nvlink_combine", w.combine_link_bytes},
                                {"nvlink", w.link_bytes},
                                {"nvlink_dedup", w.dedup_link_bytes}};
  nlohmann::json json = {{"gpu", plan.gpu->name},
                         {"ranks", p.ranks},
                         {"experts", p.experts},
                         {"top_k", p.top_k},
                         {"hidden", p.hidden},
                         {"intermediate", p.intermediate},
                         {"shared_experts", p.shared_experts},
                         {"precision", name(p.precision)},
                         {"tokens", row.tokens},
                         {"capacity", p.max_tokens_per_rank},
                         {"rows", w.rows},
                         {"experts_hit", w.experts_hit},
                         {"bytes", bytes},
                         {"flops", w.flops},
                         {"bound_us", row.practical.us},
                         {"bound_peak_us", row.peak.us},
                         {"bound_dedup_us", row.dedup.us},
                         {"limit", name(row.practical.limit)},
                         {"symmetric_bytes", plan.symmetric_bytes},
                         {"local_bytes", plan.local_bytes},
                         {"resident_weight_bytes", plan.resident_weight_bytes},
                         {"config", config_json(row.config)},
                         {"notes", plan.shape.notes}};
  json["model"] = plan.shape.model ? nlohmann::json(plan.shape.model->name) : nlohmann::json();
  return json;
}

std::string head_text(const Plan& plan) {
  const Problem& p = plan.shape.problem;
  std::string text = fmt::format(
      "{}: hidden {}, intermediate {}, {} experts, top-{}, {}; {} rank{} of {}, {} experts each\n",
      plan.shape.model ? plan.shape.model->name : "custom", p.hidden, p.intermediate, p.experts,
      p.top_k, name(p.precision), p.ranks, p.ranks == 1 ? "" : "s", plan.gpu->name,
      p.experts_per_rank());
  for (const std::string& note : plan.shape.notes) text += fmt::format("note: {}\n", note);
  text += fmt::format(
      "\nMemory per rank, capacity {} tokens:\n  symmetric  {}\n  local      {}\n  weights    {} "
      "per layer\n\n",
      p.max_tokens_per_rank, bytes_text(static_cast<double>(plan.symmetric_bytes)),
      bytes_text(static_cast<double>(plan.local_bytes)), bytes_text(plan.resident_weight_bytes));
  return text;
}

std::string config_text(const KernelConfig& c) {
  return fmt::format("{} {}", c.family == Family::decode ? "decode" : "prefill", c.block_rows);
}

int execute_plan(const Plan& plan, bool json, bool map, Io& io) {
  if (json) {
    io.out << plan_json(plan) << "\n";
    return kDone;
  }
  io.out << plan_text(plan);
  if (map) io.out << "\nMap of one rank's memory:\n" << layout_map(plan.shape.problem);
  return kDone;
}

}  // namespace

const Gpu& parse_gpu(const std::string& text) {
  if (const Gpu* gpu = find_gpu(text)) return *gpu;
  std::vector<std::string_view> names;
  for (const Gpu& gpu : gpus()) names.push_back(gpu.name);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown GPU '{}'{}", text, suggestion(text, names)));
}

Plan make_plan(Shape shape, const Gpu& gpu) {
  check_precision(shape, gpu);
  note_limits(shape, gpu);
  const Problem& p = shape.problem;
  Plan plan;
  plan.gpu = &gpu;
  plan.symmetric_bytes = symmetric_layout(p).bytes;
  plan.local_bytes = local_layout(p).bytes;
  plan.resident_weight_bytes =
      3.0 * p.hidden * p.intermediate * p.local_experts() * bytes_per_weight(p.precision);
  for (const int tokens : shape.tokens) {
    const LayerWork work = mean_work(p, tokens);
    plan.rows.push_back({.tokens = tokens,
                         .work = work,
                         .config = choose_config(p, static_cast<long>(tokens) * p.ranks),
                         .practical = time_bound(work, gpu.practical, p.precision),
                         .peak = time_bound(work, gpu.peak, p.precision),
                         .dedup = time_bound(work, gpu.practical, p.precision, Copies::per_rank)});
  }
  plan.shape = std::move(shape);
  return plan;
}

std::string plan_json(const Plan& plan) {
  if (plan.rows.size() == 1) return row_json(plan, plan.rows[0]).dump(2);
  nlohmann::json list = nlohmann::json::array();
  for (const PlanRow& row : plan.rows) list.push_back(row_json(plan, row));
  return list.dump(2);
}

std::string plan_text(const Plan& plan) {
  Table table({"tokens\nper rank", "rows", "experts\nhit", "weights\nread MB", "activations\nMB",
               "NVLink MB\neach way", "one copy\nper rank", "GFLOP", "config", "bound\nus",
               "one copy\nper rank", "at peak\nus", "limit"});
  for (const PlanRow& row : plan.rows) {
    const LayerWork& w = row.work;
    table.add({std::to_string(row.tokens), short_number(w.rows), short_number(w.experts_hit, 3),
               short_number(w.weight_bytes / 1e6),
               short_number((w.hbm_bytes() - w.weight_bytes) / 1e6),
               short_number(w.link_bytes / 1e6), short_number(w.dedup_link_bytes / 1e6),
               short_number(w.flops / 1e9), config_text(row.config), short_number(row.practical.us),
               short_number(row.dedup.us), short_number(row.peak.us), name(row.practical.limit)});
  }
  return head_text(plan) + table.text() +
         "\nBound: no call is faster, at practical rates and uniform routing. Rows, bytes and "
         "operations are per rank.\n";
}

int plan_main(const Arguments& arguments, Io& io, Depth depth) {
  CLI::App app("Memory, bytes, operations and the lower bound of a layer's time; needs no GPU.",
               "megamoe plan");
  app.footer(kPlanExamples);
  const ProblemDefaults defaults = plan_defaults();
  ProblemFlags flags;
  add_problem_flags(app, flags, defaults);
  std::optional<std::string> gpu;
  bool map = false;
  bool json = false;
  add_text(app, "--gpu", gpu, "TYPE", "H20, H100, H200, H800 or B200 (default H200)");
  app.add_flag("--map", map, "Also print every buffer's offset and size");
  app.add_flag("--json", json, "Print JSON: an object, or a list for several token counts");
  if (!parse_arguments(app, arguments, io)) return kDone;
  if (map && json) {
    throw Error(ErrorCode::invalid_argument, "--map and --json cannot be given together");
  }
  const Plan plan = make_plan(resolve_shape(flags, defaults), parse_gpu(gpu.value_or("H200")));
  return depth == Depth::validate ? kDone : execute_plan(plan, json, map, io);
}

}  // namespace megamoe::cli
