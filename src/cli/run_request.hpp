#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/problem_flags.hpp"
#include "megamoe/symmetric_memory.hpp"
#include "ref/random_case.hpp"

// A forward declaration keeps the large header of the parser out of most files.
namespace CLI {  // NOLINT(readability-identifier-naming): the parser's name
class App;
}  // namespace CLI

namespace megamoe::cli {

/// The flags of `run` beside those of the problem, as typed.
struct RunFlags {
  ProblemFlags problem;
  std::optional<std::string> routing, seed, checkpoint, layer, input, output;
  std::optional<std::string> backend, check, repeat, deadline, num_sms, reserved_sms;
  std::optional<std::string> block_rows, waves, ctas;
  bool virtual_ranks = false;
  bool processes = false;
  bool json = false;
};

enum class Backend : std::uint8_t { automatic, cpu, cuda };

/// How much of y is compared with the reference.
struct CheckSpec {
  enum class Kind : std::uint8_t {
    automatic,  ///< everything, or kManyRows rows where everything takes over kManyFlops
    full,
    rows,
    none,
  };
  static constexpr int kManyRows = 64;
  static constexpr double kManyFlops = 10e9;
  Kind kind = Kind::automatic;
  int rows = 0;  ///< for Kind::rows
};

/// Where a run's weights and tokens come from, and how it is called; all values checked.
struct RunRequest {
  ProblemFlags problem;  ///< resolved when the shape is known: flags or checkpoint
  ref::Routing routing;
  std::uint64_t seed = 0;
  std::optional<std::string> checkpoint;
  int layer = 0;
  std::optional<std::string> input;
  std::optional<std::string> output;
  Backend backend = Backend::automatic;
  bool virtual_ranks = false;
  bool processes = false;  ///< one for each rank
  /// This process is one rank of those that a launcher has started.
  std::optional<LauncherRank> launcher;
  CheckSpec check;
  int repeat = 1;
  std::chrono::nanoseconds deadline{};
  bool deadline_given = false;
  int num_sms = 0;
  bool cpu_ctas = false;            ///< num_sms came as --ctas
  std::optional<int> reserved_sms;  ///< nothing: the library's default
  int block_rows = 0;               ///< 0: chosen
  int waves = 0;                    ///< 0: chosen
  bool json = false;
};

ProblemDefaults run_defaults();
void add_run_flags(CLI::App& app, RunFlags& flags);

/// Checks what can be checked without opening a file. Throws Error naming the value.
RunRequest resolve_run(const RunFlags& flags);

/// The help of --routing.
inline constexpr const char* kRoutingHelp =
    "uniform, balanced, one-rank, one-expert, skewed, hot-expert (7 times the mean), hot-rank (3 "
    "times), masked:P or none (default uniform)";

/// What --routing names. Throws Error naming near ones.
ref::Routing parse_routing_flag(const std::string& text);

/// What --block-rows says; 0 without it.
int parse_block_rows(const std::optional<std::string>& text);

/// full, rows:N or none.
CheckSpec parse_check(const std::string& text);

const char* name(Backend backend);

}  // namespace megamoe::cli
