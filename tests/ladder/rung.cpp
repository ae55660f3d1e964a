#include "tests/ladder/rung.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <CLI/CLI.hpp>

#include "host/devices.hpp"

namespace megamoe::ladder {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);
constexpr std::size_t kMostLines = 8;
/// Capacity beyond a case's tokens, so that there are rows without a token.
constexpr int kSpareTokens = 8;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Ends the process when it has run for longer than the limit: a call that hangs cannot be joined.
class Watchdog {
 public:
  explicit Watchdog(std::string name)
      : thread_([this, name = std::move(name)] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, kLimit, [this] { return done_; })) return;
          print(fmt::format("{}: FAIL: not over after {} s\n", name, kLimit.count()));
          std::_Exit(1);
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

/// True if the case passed.
bool run_one(const Arguments& arguments, int tokens, const Case& run_case) {
  Failures failures;
  std::string note;
  const auto start = std::chrono::steady_clock::now();
  try {
    run_case(arguments, tokens, failures, note);
  } catch (const std::exception& e) {
    failures.add(e.what());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  print(fmt::format("  {:>5} tokens  {}  {:5.1f} s  {}\n", tokens,
                    failures.empty() ? "PASS" : "FAIL", took.count(), note));
  for (const std::string& line : failures.lines()) print(fmt::format("      {}\n", line));
  if (failures.count() > failures.lines().size())
    print(fmt::format("      and {} more\n", failures.count() - failures.lines().size()));
  return failures.empty();
}

std::string why_not(const Arguments& arguments) {
  const int gpus = arguments.virtual_ranks ? 1 : arguments.ranks;
  const Devices found = find_devices();
  if (static_cast<int>(found.usable.size()) >= gpus) return {};
  return fmt::format("{} usable GPUs of the {} needed: {}", found.usable.size(), gpus,
                     found.reason);
}

}  // namespace

void Failures::add(const std::string& line) {
  ++count_;
  if (lines_.size() < kMostLines) lines_.push_back(line);
}

int climb(int argc, char** argv, const char* name, const char* what, const Case& run_case) {
  Arguments arguments;
  CLI::App app(fmt::format("{}: {}", name, what));
  app.add_option("--tokens-list", arguments.tokens, "tokens per rank, one case each")
      ->delimiter(',')
      ->check(CLI::Range(0, 4096));
  app.add_option("--ranks", arguments.ranks)->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--blocks", arguments.blocks, "rows per block")
      ->delimiter(',')
      ->check(CLI::IsMember({8, 16, 32, 64, 128}));
  app.add_flag("--virtual", arguments.virtual_ranks, "all ranks on one GPU, in one launch");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  print(fmt::format("{}: {} ({} {})\n", name, what, arguments.ranks,
                    arguments.virtual_ranks ? "virtual ranks on one GPU" : "ranks, a GPU each"));
  if (const std::string reason = why_not(arguments); !reason.empty()) {
    print(fmt::format("{}: FAIL: {}\n", name, reason));
    return 1;
  }
  const Watchdog watchdog(name);
  int passed = 0;
  for (const int tokens : arguments.tokens) passed += run_one(arguments, tokens, run_case) ? 1 : 0;
  const int failed = static_cast<int>(arguments.tokens.size()) - passed;
  print(fmt::format("{}: {} passed, {} failed\n", name, passed, failed));
  return failed == 0 && passed > 0 ? 0 : 1;
}

Problem problem(const Arguments& arguments, int tokens) {
  return {.ranks = arguments.ranks,
          .experts = 48,
          .top_k = 6,
          .hidden = 640,
          .intermediate = 256,
          .max_tokens_per_rank = tokens + kSpareTokens};
}

std::unique_ptr<GpuCase> make_layer(const Arguments& arguments, int tokens) {
  const Problem p = problem(arguments, tokens);
  if (arguments.virtual_ranks) return std::make_unique<GpuCase>(p);
  return std::make_unique<GpuCase>(p, gpus_of(p.ranks));
}

}  // namespace megamoe::ladder
