// Ranks as processes over POSIX shared memory: what happens when they die, stop, skip, or disagree.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/protocol/cpu_case.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Problem small_problem(int ranks) {
  return {.ranks = ranks,
          .experts = 48,
          .top_k = 4,
          .hidden = 128,
          .intermediate = 128,
          .max_tokens_per_rank = 32};
}

/// Child processes, one per rank; each reports one line. Whatever is left at the end is killed.
class Children {
 public:
  /// Forks before any thread exists in this process.
  Children(int ranks, const std::function<std::string(int)>& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) {
        close(ends[0]);
        std::string text;
        try {
          text = body(rank);
        } catch (const Error& e) {
          text = std::string("Error: ") + e.what();
        }
        (void)!write(ends[1], text.data(), text.size());
        _exit(0);
      }
      close(ends[1]);
      processes_.push_back(child);
      pipes_.push_back(ends[0]);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const pid_t child : processes_) {
      if (child > 0) kill(child, SIGKILL), waitpid(child, nullptr, 0);
    }
    for (const int end : pipes_) close(end);
  }

  void signal(int rank, int number) { kill(processes_[static_cast<std::size_t>(rank)], number); }

  /// What rank reported, once its process has ended normally; the wait is bounded.
  std::string report(int rank, std::chrono::seconds limit = 60s) {
    pid_t& child = processes_[static_cast<std::size_t>(rank)];
    int status = 0;
    const auto end = Clock::now() + limit;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > end) return "still running";
      std::this_thread::sleep_for(1ms);
    }
    child = 0;
    if (!WIFEXITED(status)) return "ended by a signal";
    std::string text(4096, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(
        0, read(pipes_[static_cast<std::size_t>(rank)], text.data(), text.size()))));
    return text;
  }

 private:
  std::vector<pid_t> processes_;
  std::vector<int> pipes_;
};

std::string unique_name() {
  static int count = 0;
  return fmt::format("test.{}.{}", getpid(), count++);
}

/// One rank's side of a group across processes.
class Process {
 public:
  Process(const Problem& problem, const std::string& name, int rank)
      : problem_(problem),
        weights_(ref::random_weights(problem, rank, 7)),
        view_(weights_.view()),
        group_(problem, SymmetricMemory::shared({name, problem.ranks, rank, 20s})) {}

  Layer& layer() { return group_.layer(0); }
  Group& group() { return group_; }

  /// One call; y as text of its bits' sum is compared by the parent with the reference's.
  std::vector<std::uint16_t> call(std::uint64_t seed, const ForwardOptions& options = {}) {
    const auto inputs = equal_inputs(problem_, kTokens, {ref::RoutingKind::uniform}, seed);
    const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(layer().rank())];
    layer().stage(tokens.hidden_states.data(), std::span<const std::int64_t>(tokens.topk_idx),
                  tokens.topk_weights, kTokens);
    std::vector<std::uint16_t> y(static_cast<std::size_t>(kTokens * problem_.hidden));
    layer().forward(y.data(), kTokens, view_, nullptr, options);
    return y;
  }
  /// As call, compared with the reference; "right" or what is wrong.
  std::string checked_call(std::uint64_t seed, const ForwardOptions& options = {}) {
    const auto y = call(seed, options);
    const auto inputs = equal_inputs(problem_, kTokens, {ref::RoutingKind::uniform}, seed);
    std::vector<ref::Row> rows;
    for (int t = 0; t < kTokens; ++t) rows.push_back({layer().rank(), t});
    const auto layer_weights = ref::random_layer(problem_, 7);
    const auto expected = ref::run_rows(inputs.view(), layer_weights.view(), rows);
    const ref::Difference d = ref::compare(y, expected, problem_.hidden);
    return d.diff < 3e-5 ? "right" : fmt::format("diff {}", d.diff);
  }
  void slow_down() {
    LayerAccess::state(layer()).delay_seed = 77 + static_cast<std::uint64_t>(layer().rank());
  }

  static constexpr int kTokens = 20;

 private:
  Problem problem_;
  ref::OwnedExpertTensors weights_;
  ExpertTensors view_;
  Group group_;
};

ForwardOptions with_deadline(std::chrono::milliseconds deadline) {
  ForwardOptions options;
  options.deadline = deadline;
  return options;
}

/// Lets the parent wait until its children have come to a point.
class Meeting {
 public:
  Meeting() { EXPECT_EQ(pipe(ends_), 0); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() { close(ends_[0]), close(ends_[1]); }
  /// By a child.
  void arrive() const { EXPECT_EQ(write(ends_[1], "", 1), 1); }
  /// By the parent; false if not all came in time.
  [[nodiscard]] bool wait(int children, std::chrono::seconds limit = 60s) const {
    const auto end = Clock::now() + limit;
    for (int came = 0; came < children;) {
      pollfd look = {ends_[0], POLLIN, 0};
      char byte = 0;
      if (poll(&look, 1, 100) == 1 && read(ends_[0], &byte, 1) == 1) ++came;
      if (Clock::now() > end) return false;
    }
    return true;
  }

 private:
  int ends_[2] = {};
};

TEST(Processes, CallsAreRightAndResetBringsTheGroupBack) {
  const std::string name = unique_name();
  Children children(3, [&](int rank) -> std::string {
    Process p(small_problem(3), name, rank);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      if (const std::string text = p.checked_call(seed); text != "right") return text;
    }
    try {
      if (rank != 1) p.call(30, with_deadline(100ms));
    } catch (const Error&) {
    }
    p.group().reset();
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      if (const std::string text = p.checked_call(seed); text != "right") return text;
    }
    return "right";
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(children.report(rank), "right") << rank;
}

TEST(Processes, OneOfEightKilledInMidCallIsNamedByAllOthers) {
  const std::string name = unique_name();
  constexpr int kDead = 5;
  constexpr auto kDeadline = 2000ms;
  constexpr std::uint64_t kCallsBefore = 4;
  const Meeting meeting;
  Children children(8, [&](int rank) -> std::string {
    Process p(small_problem(8), name, rank);
    p.call(1);
    p.slow_down();
    // The slower this machine is at present, the longer a call takes, with a fault or without.
    auto longest = Clock::duration::zero();
    for (std::uint64_t seed = 2;; ++seed) {
      if (seed == 2 + kCallsBefore) meeting.arrive();
      const auto begin = Clock::now();
      try {
        p.call(seed, with_deadline(seed < 2 + kCallsBefore ? 60s : kDeadline));
        longest = std::max(longest, Clock::now() - begin);
      } catch (const Error& e) {
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
        return took < kDeadline + 1s + 2 * longest ? e.what()
                                                   : fmt::format("took {} ms", took.count());
      }
    }
  });
  ASSERT_TRUE(meeting.wait(8));
  std::this_thread::sleep_for(200ms);
  children.signal(kDead, SIGKILL);
  for (int rank = 0; rank < 8; ++rank) {
    if (rank == kDead) continue;
    EXPECT_THAT(children.report(rank), HasSubstr("the process of rank 5 has ended")) << rank;
  }
  EXPECT_EQ(children.report(kDead), "ended by a signal");
}

TEST(Processes, OneStoppedForThreeSecondsIsSurvived) {
  const std::string name = unique_name();
  Children children(3, [&](int rank) -> std::string {
    Process p(small_problem(3), name, rank);
    p.slow_down();
    const auto end = Clock::now() + 4s;
    std::uint64_t seed = 1;
    // All ranks must make the same number of calls: rank 0's clock decides, its decision travels in
    // the group.
    while (true) {
      const std::string more = rank == 0 && Clock::now() < end ? "more" : "";
      std::string decision;
      for (const std::string& text : LayerAccess::state(p.layer()).provider->all_gather(more))
        decision += text;
      if (decision.empty()) return "right";
      if (const std::string text = p.checked_call(seed++, with_deadline(20s)); text != "right")
        return text;
    }
  });
  std::this_thread::sleep_for(500ms);
  children.signal(1, SIGSTOP);
  std::this_thread::sleep_for(3s);
  children.signal(1, SIGCONT);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(children.report(rank), "right") << rank;
}

TEST(Processes, ASkippedCallIsNamedWithRankAndBothEpochs) {
  const std::string name = unique_name();
  Children children(3, [&](int rank) -> std::string {
    Process p(small_problem(3), name, rank);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) p.call(seed);
    if (rank != 2) p.call(5, with_deadline(1s));
    return "no fault";
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(children.report(rank),
                AllOf(HasSubstr(fmt::format("rank {}, call 5", rank)),
                      HasSubstr("rank 2 is at call 4, this rank at 5: it is late, or skipped one")))
        << rank;
  }
  EXPECT_EQ(children.report(2), "no fault");
}

TEST(Processes, ALateCallIsWaitedFor) {
  const std::string name = unique_name();
  Children children(2, [&](int rank) -> std::string {
    Process p(small_problem(2), name, rank);
    if (rank == 1) std::this_thread::sleep_for(700ms);
    return p.checked_call(1);
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(children.report(rank), "right");
}

TEST(Processes, DifferentProblemsAreRefusedOnEveryRank) {
  const std::string name = unique_name();
  Children children(3, [&](int rank) -> std::string {
    Problem problem = small_problem(3);
    if (rank == 2) problem.hidden = 256;
    if (rank == 0) problem.activation.clamp = 7;
    Process p(problem, name, rank);
    return "accepted";
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        children.report(rank),
        AllOf(HasSubstr("hidden = 128 (ranks 0, 1), hidden = 256 (rank 2)"),
              HasSubstr("activation clamp = 7 (rank 0), activation clamp = inf (ranks 1, 2)")))
        << rank;
  }
}

/// A process that runs another version of the library.
class OtherVersion final : public SymmetricMemory {
 public:
  explicit OtherVersion(std::unique_ptr<SymmetricMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] int ranks() const override { return memory_->ranks(); }
  [[nodiscard]] std::vector<int> local_ranks() const override { return memory_->local_ranks(); }
  [[nodiscard]] bool one_launch() const override { return memory_->one_launch(); }
  [[nodiscard]] std::vector<int> lost_ranks() const override { return memory_->lost_ranks(); }
  std::vector<std::byte*> allocate(std::size_t bytes) override { return memory_->allocate(bytes); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::string other = text;
    const std::string version_text = version();
    if (const std::size_t at = other.find(version_text); at != std::string::npos) {
      other.replace(at, version_text.size(), "99.0.0");
    }
    return memory_->all_gather(other);
  }

 private:
  std::unique_ptr<SymmetricMemory> memory_;
};

TEST(Processes, DifferentLibraryVersionsAreRefusedOnEveryRank) {
  const std::string name = unique_name();
  Children children(2, [&](int rank) -> std::string {
    auto memory = SymmetricMemory::shared({name, 2, rank, 20s});
    if (rank == 1) memory = std::make_unique<OtherVersion>(std::move(memory));
    Group group(small_problem(2), std::move(memory));
    return "accepted";
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(children.report(rank), HasSubstr("library version = 99.0.0 (rank 1)")) << rank;
  }
}

TEST(Processes, OneThatDiesWhileJoiningIsNamedAtOnce) {
  const std::string name = unique_name();
  Children children(3, [&](int rank) -> std::string {
    const auto memory = SymmetricMemory::shared({name, 3, rank, 60s});
    if (rank == 1) raise(SIGKILL);
    const auto begin = Clock::now();
    try {
      memory->all_gather("");
    } catch (const Error& e) {
      return Clock::now() - begin < 30s ? e.what() : "late";
    }
    return "joined";
  });
  for (const int rank : {0, 2})
    EXPECT_THAT(children.report(rank), HasSubstr("the process of rank 1 has ended before step "));
}

TEST(Processes, AProcessThatNeverJoinsIsNamed) {
  const std::string name = unique_name();
  Children children(2, [&](int rank) -> std::string {
    const auto memory = SymmetricMemory::shared({name, 3, rank, 300ms});
    return "joined";
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(children.report(rank), HasSubstr("ranks 2 of 3 did not come"));
}

}  // namespace
}  // namespace megamoe
