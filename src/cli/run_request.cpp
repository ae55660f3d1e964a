#include "cli/run_request.hpp"

#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/arguments.hpp"
#include "cli/numbers.hpp"
#include "cli/suggest.hpp"
#include "config/kernel_config.hpp"
#include "config/refuse.hpp"
#include "host/devices.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

constexpr int kMaxSms = 1024;
constexpr int kMaxRepeat = 1'000'000;
constexpr int kMaxLayer = 100'000;

/// `apart`: this process is going to fork, and must not start the driver.
Backend parse_backend(const std::string& text, bool apart) {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "cpu", "cuda"};
  if (text == "auto") return Backend::automatic;
  if (text == "cpu") return Backend::cpu;
  if (text != "cuda") refuse(fmt::format("unknown backend '{}'{}", text, suggestion(text, kNames)));
  const Devices found = apart ? find_devices_apart() : find_devices();
  if (!found.usable.empty()) return Backend::cuda;
  throw Error(ErrorCode::unsupported,
              fmt::format("--backend cuda: {}; the nearest that works is cpu", found.reason));
}

/// A checkpoint brings its own shape.
void check_sources(const RunFlags& flags) {
  if (!flags.checkpoint) {
    if (flags.layer) refuse("--layer is only used with --checkpoint");
    return;
  }
  if (!flags.layer) refuse("--checkpoint needs --layer L");
  const ProblemFlags& p = flags.problem;
  const std::array<std::pair<const char*, bool>, 6> own = {{
      {"--model", p.model.has_value()},
      {"--hidden", p.hidden.has_value()},
      {"--intermediate", p.intermediate.has_value()},
      {"--experts", p.experts.has_value()},
      {"--top-k", p.top_k.has_value()},
      {"--activation", p.activation.has_value()},
  }};
  for (const auto& [flag, given] : own) {
    if (given) refuse(fmt::format("{} and --checkpoint exclude each other", flag));
  }
}

void resolve_tuning(const RunFlags& flags, RunRequest& request) {
  if (flags.ctas && flags.num_sms) refuse("--ctas and --num-sms exclude each other");
  request.num_sms = flags.ctas ? integer_or(flags.ctas, "--ctas", 1, kMaxSms, 0)
                               : integer_or(flags.num_sms, "--num-sms", 0, kMaxSms, 0);
  request.cpu_ctas = flags.ctas.has_value();
  if (flags.reserved_sms)
    request.reserved_sms = integer_or(flags.reserved_sms, "--reserved-sms", 0, kMaxSms, 0);
  request.block_rows = parse_block_rows(flags.block_rows);
  request.waves = integer_or(flags.waves, "--waves", 1, kMaxWaves, 0);
}

/// Under a launcher such as torchrun, this process is one rank of its world.
void resolve_launcher(RunRequest& request) {
  const char* const world = std::getenv("WORLD_SIZE");
  const bool launched =
      world != nullptr && std::getenv("RANK") != nullptr && std::getenv("MASTER_ADDR") != nullptr;
  if (!launched || request.virtual_ranks || request.processes) return;
  const LauncherRank rank = rank_from_environment();
  if (rank.join.ranks == 1) return;
  const std::string ranks = std::to_string(rank.join.ranks);
  if (request.problem.ranks.value_or(ranks) != ranks) {
    refuse(
        fmt::format("--ranks = {} in a world of {} (WORLD_SIZE)", *request.problem.ranks, ranks));
  }
  request.problem.ranks = ranks;
  request.launcher = rank;
}

}  // namespace

ref::Routing parse_routing_flag(const std::string& text) {
  const std::string masked = "masked:";
  if (text.rfind(masked, 0) == 0) {
    return {.kind = ref::RoutingKind::masked,
            .masked = parse_real("--routing masked", text.substr(masked.size()), 0, 1)};
  }
  constexpr std::array<std::string_view, 9> kNames = {"uniform",    "balanced", "one-rank",
                                                      "one-expert", "skewed",   "hot-expert",
                                                      "hot-rank",   "masked:P", "none"};
  constexpr std::array<ref::RoutingKind, 9> kKinds = {
      ref::RoutingKind::uniform,    ref::RoutingKind::balanced, ref::RoutingKind::one_rank,
      ref::RoutingKind::one_expert, ref::RoutingKind::skewed,   ref::RoutingKind::hot_expert,
      ref::RoutingKind::hot_rank,   ref::RoutingKind::masked,   ref::RoutingKind::none};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text && kKinds[i] != ref::RoutingKind::masked) return {.kind = kKinds[i]};
  }
  refuse(fmt::format("unknown routing '{}'{}", text, suggestion(text, kNames)));
}

ProblemDefaults run_defaults() {
  return {.ranks = 1,
          .tokens = "8",
          .tokens_help = "Tokens: one count for all ranks, or one per rank (default 8)"};
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  add_problem_flags(app, flags.problem, run_defaults());
  std::string group = "Data";
  const auto add = [&](const char* flag, std::optional<std::string>& text, const char* value,
                       const char* help) { add_text(app, flag, text, value, help)->group(group); };
  add("--activation", flags.problem.activation, "A",
      "swiglu, swiglu-oai or situ (default: the model's, else swiglu)");
  add("--routing", flags.routing, "R", kRoutingHelp);
  add("--seed", flags.seed, "S", "Seed of everything generated (default 1)");
  add("--checkpoint", flags.checkpoint, "PATH",
      "Folder or file in safetensors, config.json beside it; else weights are generated");
  add("--layer", flags.layer, "L", "Layer of the checkpoint");
  add("--input", flags.input, "FILE",
      "safetensors with hidden_states [tokens, hidden] BF16 and, unless routing is generated, "
      "topk_idx and topk_weights [tokens, top_k], the model's routed scaling already in them; "
      "tokens are dealt to the ranks in order");
  add("--output", flags.output, "FILE", "Where to write y [tokens, hidden] BF16, as safetensors");
  group = "Call";
  add("--backend", flags.backend, "B",
      "auto, cpu or cuda (default auto: GPUs where they run the problem)");
  app.add_flag("--virtual", flags.virtual_ranks, "All ranks in one launch")->group(group);
  app.add_flag("--processes", flags.processes,
               "A process for each rank, on the CPU or with a GPU each")
      ->group(group);
  add("--check", flags.check, "C",
      "Compare with the reference: full, rows:N or none (default full, rows:64 above 10 GFLOP)");
  add("--repeat", flags.repeat, "R", "Calls; all must agree bit for bit (default 1)");
  add("--deadline", flags.deadline, "SECONDS",
      "Longest wait inside a call (default 30; 600 on the CPU, which waits for products)");
  add("--num-sms", flags.num_sms, "N", "Most SMs to use (default 0: all)");
  add("--reserved-sms", flags.reserved_sms, "N",
      "SMs left free (default: MEGAMOE_RESERVED_SMS, else 0)");
  add("--ctas", flags.ctas, "N", "CTAs per rank on the CPU");
  add("--block-rows", flags.block_rows, "N", "Rows per block: 8, 16, 32, 64 or 128");
  add("--waves", flags.waves, "N", "Waves of source tokens, 1..4");
  app.add_flag("--json", flags.json, "Print one JSON object");
}

int parse_block_rows(const std::optional<std::string>& text) {
  const int rows = integer_or(text, "--block-rows", kMinBlockRows, kMaxBlockRows, 0);
  if ((rows & (rows - 1)) != 0)
    refuse(fmt::format("--block-rows = {} is not one of 8, 16, 32, 64, 128", rows));
  return rows;
}

CheckSpec parse_check(const std::string& text) {
  if (text == "full") return {.kind = CheckSpec::Kind::full};
  if (text == "none") return {.kind = CheckSpec::Kind::none};
  const std::string rows = "rows:";
  if (text.rfind(rows, 0) == 0) {
    return {.kind = CheckSpec::Kind::rows,
            .rows = static_cast<int>(parse_integer("--check rows", text.substr(rows.size()), 1,
                                                   std::numeric_limits<int>::max()))};
  }
  constexpr std::array<std::string_view, 3> kNames = {"full", "rows:N", "none"};
  refuse(fmt::format("unknown check '{}'{}", text, suggestion(text, kNames)));
}

RunRequest resolve_run(const RunFlags& flags) {
  RunRequest request;
  check_sources(flags);
  request.problem = flags.problem;
  request.routing = parse_routing_flag(flags.routing.value_or("uniform"));
  request.seed = parse_seed("--seed", flags.seed.value_or("1"));
  request.checkpoint = flags.checkpoint;
  request.layer = integer_or(flags.layer, "--layer", 0, kMaxLayer, 0);
  request.input = flags.input;
  request.output = flags.output;
  request.backend = parse_backend(flags.backend.value_or("auto"), flags.processes);
  if (flags.virtual_ranks && flags.processes)
    refuse("--virtual and --processes exclude each other");
  request.virtual_ranks = flags.virtual_ranks;
  request.processes = flags.processes;
  resolve_launcher(request);
  if (flags.check) request.check = parse_check(*flags.check);
  request.repeat = integer_or(flags.repeat, "--repeat", 1, kMaxRepeat, 1);
  const double seconds = parse_real("--deadline", flags.deadline.value_or("30"), 0.001, 86400);
  request.deadline_given = flags.deadline.has_value();
  request.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  request.json = flags.json;
  resolve_tuning(flags, request);
  // The numbers of the shape are checked now where they do not wait for a file.
  if (!flags.checkpoint) {
    const Shape shape = resolve_shape(request.problem, run_defaults());
    if (!flags.input) tokens_per_rank(shape);
  }
  return request;
}

const char* name(Backend backend) {
  switch (backend) {
    case Backend::automatic:
      return "auto";
    case Backend::cpu:
      return "cpu";
    case Backend::cuda:
      break;
  }
  return "cuda";
}

}  // namespace megamoe::cli
