#include "tests/multi/process_scenarios.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "tests/multi/process_rank.hpp"

namespace megamoe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Problem small_problem() {
  return {.ranks = 2,
          .experts = 16,
          .top_k = 4,
          .hidden = 256,
          .intermediate = 128,
          .max_tokens_per_rank = 200};
}

ref::RandomInputs inputs_of(int tokens, std::uint64_t seed) {
  return ref::random_inputs(small_problem(), std::vector<int>(2, tokens),
                            {ref::RoutingKind::uniform}, seed);
}

ForwardOptions with_deadlines(std::chrono::nanoseconds deadline, std::chrono::nanoseconds first) {
  ForwardOptions options;
  options.deadline = deadline;
  options.first_deadline = first;
  return options;
}

std::unique_ptr<ProcessRank> make_rank(const JoinOptions& join) {
  return ProcessBackend::rank(small_problem(), ProcessBackend::memory(join));
}

/// Stages, calls and compares.
std::string checked_call(ProcessRank& rank, const ref::RandomInputs& inputs,
                         const ForwardOptions& options = {}) {
  rank.stage(inputs);
  return rank.wrong(rank.run(options), inputs);
}

/// The words of the fault that `call` ends with, and how long it took.
struct Fault {
  std::string text = "no fault";
  Clock::duration took{};
  [[nodiscard]] std::string within(std::chrono::milliseconds limit) const {
    if (took < limit) return text;
    return fmt::format("took {} ms: {}",
                       std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), text);
  }
};
Fault fault_of(const std::function<void()>& call) {
  Fault fault;
  const auto start = Clock::now();
  try {
    call();
  } catch (const Error& error) {
    fault.text = error.what();
  }
  fault.took = Clock::now() - start;
  return fault;
}

std::string values(const JoinOptions& join) {
  const auto rank = make_rank(join);
  std::uint64_t seed = 1;
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{
           {0, 0}, {1, 1}, {8, 8}, {48, 48}, {192, 192}, {0, 77}, {199, 1}}) {
    const auto inputs =
        ref::random_inputs(small_problem(), counts, {ref::RoutingKind::uniform}, seed++);
    if (const std::string text = checked_call(*rank, inputs); !text.empty())
      return fmt::format("{} and {} tokens: {}", counts[0], counts[1], text);
  }
  return "right";
}

std::string replay(const JoinOptions& join) {
  const auto rank = make_rank(join);
  if (const std::string text = checked_call(*rank, inputs_of(40, 1)); !text.empty()) return text;
  rank->capture({});
  for (std::uint64_t seed = 2; seed < 8; ++seed) {
    const auto inputs = inputs_of(40, seed);
    rank->stage(inputs);
    const auto eager = rank->run();
    rank->start_replay();
    if (rank->finish() != eager) return fmt::format("replay of seed {} differs", seed);
    if (const std::string text = rank->wrong(eager, inputs); !text.empty()) return text;
  }
  return "right";
}

/// Rank 1 is in its call, for which rank 0 is not there yet, and is killed.
std::string killed_in_call(const JoinOptions& join) {
  const auto rank = make_rank(join);
  const auto inputs = inputs_of(40, 1);
  if (const std::string text = checked_call(*rank, inputs); !text.empty()) return text;
  const ForwardOptions options = with_deadlines(1s, 1s);
  if (join.rank == 1) {
    std::thread([] {
      std::this_thread::sleep_for(100ms);
      raise(SIGKILL);
    }).detach();
    rank->start(with_deadlines(20s, 20s));
    std::this_thread::sleep_for(20s);
    return "not killed";
  }
  std::this_thread::sleep_for(300ms);
  return fault_of([&] { rank->run(options); }).within(2000ms);
}

std::string late(const JoinOptions& join) {
  const auto rank = make_rank(join);
  for (std::uint64_t seed = 1; seed < 3; ++seed) {
    if (join.rank == 1) std::this_thread::sleep_for(700ms);
    if (const std::string text = checked_call(*rank, inputs_of(20, seed)); !text.empty())
      return text;
  }
  return "right";
}

/// Rank 1 skips call 5; its next one sees at entry that rank 0 has given up. Then all is well
/// again.
std::string skipped(const JoinOptions& join) {
  const auto rank = make_rank(join);
  const auto inputs = inputs_of(20, 1);
  for (int call = 1; call <= 4; ++call) {
    if (const std::string text = checked_call(*rank, inputs); !text.empty()) return text;
  }
  if (join.rank == 1) std::this_thread::sleep_for(1s);
  const Fault fault = fault_of([&] { rank->run(with_deadlines(500ms, 500ms)); });
  if (fault.took > 2s) return "late: " + fault.text;
  rank->group().reset();
  for (int call = 0; call < 100; ++call) {
    if (const std::string text = checked_call(*rank, inputs); !text.empty()) return text;
  }
  if (rank->layer().check().epoch != 100) return "the epoch is not 100";
  return "then right; " + fault.text;
}

std::string stopped(const JoinOptions& join) {
  const auto rank = make_rank(join);
  const auto inputs = inputs_of(20, 1);
  for (int call = 0; call < 20; ++call) {
    if (call == 10 && join.rank == 1) {
      tell_ready();
      raise(SIGSTOP);
    }
    if (const std::string text = checked_call(*rank, inputs, with_deadlines(20s, 20s));
        !text.empty())
      return text;
  }
  return "right";
}

std::string different_shapes(const JoinOptions& join) {
  Problem p = small_problem();
  if (join.rank == 1) p.hidden = 384;
  p.max_tokens_per_rank += join.rank;
  ProcessBackend::rank(p, ProcessBackend::memory(join));
  return "accepted";
}

/// Only rank 1's problem is one that no library runs.
std::string invalid_on_one(const JoinOptions& join) {
  Problem p = small_problem();
  if (join.rank == 1) p.hidden = 100;
  Group group(p, ProcessBackend::memory(join));
  return "accepted";
}

/// The deadline of the first call and the steady one, each where the other is long: for calls of
/// the host, and for captured ones.
std::string deadlines(const JoinOptions& join) {
  const auto rank = make_rank(join);
  const bool calls = join.rank == 0;
  const auto inputs = inputs_of(20, 1);
  rank->stage(inputs);
  const auto expect_fault = [&](const std::function<void()>& call, const char* what) {
    std::string text = "right";
    if (calls) {
      text = fault_of(call).within(1500ms);
      if (text.find("waiting for the counts of rank 1") != std::string::npos) text = "right";
    }
    rank->group().reset();
    return text == "right" ? "" : fmt::format("{}: {}", what, text);
  };
  std::string text =
      expect_fault([&] { rank->run(with_deadlines(20s, 300ms)); }, "first call of the host");
  if (!text.empty()) return text;
  if (!(text = checked_call(*rank, inputs, with_deadlines(300ms, 20s))).empty()) return text;
  text = expect_fault([&] { rank->run(with_deadlines(300ms, 20s)); }, "second call of the host");
  if (!text.empty()) return text;
  rank->capture(with_deadlines(300ms, 20s));
  rank->start_replay();
  if (!(text = rank->wrong(rank->finish(), inputs)).empty()) return "first replay: " + text;
  text = expect_fault([&] { rank->start_replay(), rank->finish(); }, "second replay");
  if (!text.empty()) return text;
  return "right";
}

/// Counts what a Group asks of its memory.
class Counting final : public SymmetricMemory {
 public:
  explicit Counting(std::unique_ptr<SymmetricMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] int ranks() const override { return memory_->ranks(); }
  [[nodiscard]] std::vector<int> local_ranks() const override { return memory_->local_ranks(); }
  [[nodiscard]] bool one_launch() const override { return memory_->one_launch(); }
  [[nodiscard]] std::vector<int> devices() const override { return memory_->devices(); }
  [[nodiscard]] std::vector<int> lost_ranks() const override { return memory_->lost_ranks(); }
  std::vector<std::byte*> allocate(std::size_t bytes) override {
    ++asked_;
    return memory_->allocate(bytes);
  }
  std::vector<std::string> all_gather(const std::string& text) override {
    ++asked_;
    return memory_->all_gather(text);
  }
  [[nodiscard]] const int& asked() const { return asked_; }

 private:
  std::unique_ptr<SymmetricMemory> memory_;
  int asked_ = 0;
};

std::string reserves(const JoinOptions& join) {
  auto counting = std::make_unique<Counting>(ProcessBackend::memory(join));
  const int& asked = counting->asked();
  const auto rank = ProcessBackend::rank(small_problem(), std::move(counting));
  const auto inputs = inputs_of(48, 1);
  if (std::string text = checked_call(*rank, inputs); !text.empty()) return text;
  const auto first = rank->run();
  const int asked_before = asked;
  const std::size_t used_before = ProcessBackend::used_bytes();
  for (const int reserve : {0, 2, 4, 2, 0}) {
    ForwardOptions options;
    options.reserved_sms = reserve;
    if (rank->run(options) != first) return fmt::format("reserve {}: other bits", reserve);
  }
  if (asked != asked_before) return fmt::format("{} collective steps", asked - asked_before);
  const std::size_t used = ProcessBackend::used_bytes();
  // Threads of the CPU backend take and give stacks.
  if (used > used_before + (std::size_t{64} << 20U))
    return fmt::format("{} bytes more", used - used_before);
  return "right";
}

std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// 200 Groups, destroyed now by the one and now by the other process first, some twice, some after
/// a fault.
std::string many_groups(const JoinOptions& join) {
  constexpr int kGroups = 200;
  std::size_t used = 0, files = 0;
  const auto inputs = inputs_of(8, 1);
  for (int i = 0; i < kGroups; ++i) {
    auto rank = make_rank(join);
    if (i % 20 == 0) {
      if (const std::string text = checked_call(*rank, inputs); !text.empty()) return text;
    }
    if (i % 50 == 7 && join.rank == 0) {
      rank->stage(inputs);
      fault_of([&] { rank->run(with_deadlines(50ms, 50ms)); });
    }
    if (i % 2 == join.rank && i % 20 == 0) std::this_thread::sleep_for(10ms);
    if (i % 3 == 0) {
      rank->group().destroy();
      rank->group().destroy();
      if (fault_of([&] { rank->layer().check(); }).text == "no fault") return "a Layer lives on";
    }
    rank.reset();
    if (i != 10) continue;
    used = ProcessBackend::used_bytes();
    files = open_files();
  }
  const std::size_t used_now = ProcessBackend::used_bytes(), files_now = open_files();
  // The other process may hold memory of this device for a moment longer.
  if (used_now > used + (std::size_t{32} << 20U))
    return fmt::format("{} bytes were in use, now {}", used, used_now);
  if (files_now > files) return fmt::format("{} files were open, now {}", files, files_now);
  return "right";
}

std::string pointers(const JoinOptions& join) {
  std::unique_ptr<SymmetricMemory> keep;
  auto memory = ProcessBackend::pointers(join, keep, small_problem());
  const auto rank = ProcessBackend::rank(small_problem(), std::move(memory));
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    if (const std::string text = checked_call(*rank, inputs_of(33, seed)); !text.empty())
      return text;
  }
  return "right";
}

/// With MEGAMOE_POISON: no call reads what an earlier one has left.
std::string poisoned(const JoinOptions& join) {
  const auto rank = make_rank(join);
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const auto inputs = inputs_of(seed % 2 == 0 ? 190 : 13, seed);
    if (const std::string text = checked_call(*rank, inputs); !text.empty()) return text;
    const auto y = rank->run();
    if (rank->run() != y) return "the same tokens again: other bits";
  }
  return "right";
}

}  // namespace

std::string run_scenario(const std::string& name, const JoinOptions& join) {
  static const std::map<std::string, std::string (*)(const JoinOptions&)> kScenarios = {
      {"values", values},
      {"replay", replay},
      {"killed", killed_in_call},
      {"late", late},
      {"skipped", skipped},
      {"stopped", stopped},
      {"different shapes", different_shapes},
      {"invalid on one", invalid_on_one},
      {"deadlines", deadlines},
      {"reserves", reserves},
      {"many groups", many_groups},
      {"pointers", pointers},
      {"poisoned", poisoned}};
  const auto found = kScenarios.find(name);
  if (found == kScenarios.end()) return ProcessBackend::own_scenario(name, join);
  return found->second(join);
}

}  // namespace megamoe
