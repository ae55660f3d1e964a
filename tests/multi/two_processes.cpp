// Two processes, a rank each: their calls, and what happens when one is late, skips a call, stops,
// dies or disagrees. The binary runs itself again for each rank, so that no process is forked after
// its parent has started CUDA; they meet as a launcher's processes do. Whatever is left of them at
// the end of a test is killed.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/devices.hpp"
#include "megamoe/error.hpp"
#include "tests/multi/process_scenarios.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kReportFile = 30;
constexpr int kReadyFile = 31;
constexpr const char* kRankFlag = "--as-rank-in";

/// A port of this machine that nobody has at present.
int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(file, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(file);
  return ntohs(address.sin_port);
}

struct Ends {
  Ends() { EXPECT_EQ(pipe2(files, O_CLOEXEC), 0); }
  int files[2] = {-1, -1};
};

struct Report {
  std::string text;
  int status = -1;  ///< exit status; -1: ended by a signal, or killed here for running too long
  Clock::time_point end;
};

class Pair {
 public:
  explicit Pair(const std::string& scenario, const std::map<std::string, std::string>& more = {}) {
    const std::string port = std::to_string(free_port());
    for (int rank = 0; rank < 2; ++rank) {
      std::map<std::string, std::string> environment = more;
      environment.insert({{"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "1"},
                          {"MEGAMOE_PORT", port}});
      start(rank, {"/proc/self/exe", kRankFlag, scenario}, environment);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (Child& child : children_) {
      if (child.process > 0) kill(child.process, SIGKILL), waitpid(child.process, nullptr, 0);
      close(child.report);
      close(child.ready);
    }
  }

  void signal(int rank, int number) { kill(children_[rank].process, number); }

  /// Waits until the rank's process has come to its point.
  [[nodiscard]] bool wait_ready(int rank, std::chrono::seconds limit = 30s) const {
    pollfd look = {children_[rank].ready, POLLIN, 0};
    char byte = 0;
    return poll(&look, 1, static_cast<int>(limit.count() * 1000)) == 1 &&
           read(children_[rank].ready, &byte, 1) == 1;
  }

  Report join(int rank, std::chrono::seconds limit = 60s) {
    Child& child = children_[rank];
    Report report;
    int status = 0;
    const auto end = Clock::now() + limit;
    while (waitpid(child.process, &status, WNOHANG) == 0) {
      if (Clock::now() > end) {
        report.text = "still running";
        return report;
      }
      std::this_thread::sleep_for(1ms);
    }
    child.process = 0;
    report.end = Clock::now();
    if (WIFEXITED(status)) report.status = WEXITSTATUS(status);
    char part[4096];
    for (ssize_t size = 0; (size = read(child.report, part, sizeof(part))) > 0;)
      report.text.append(part, static_cast<std::size_t>(size));
    return report;
  }

  void expect_right(std::chrono::seconds limit = 60s) {
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(join(rank, limit).text, "right") << rank;
  }

 private:
  struct Child {
    pid_t process = 0;
    int report = -1, ready = -1;
  };

  void start(int rank, std::vector<std::string> arguments,
             const std::map<std::string, std::string>& environment) {
    const Ends report, ready;
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(97);
      dup2(report.files[1], kReportFile);
      dup2(ready.files[1], kReadyFile);
      for (const auto& [variable, value] : environment) setenv(variable.c_str(), value.c_str(), 1);
      std::vector<char*> pointers;
      for (std::string& argument : arguments) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      execv("/proc/self/exe", pointers.data());
      _exit(98);
    }
    close(report.files[1]);
    close(ready.files[1]);
    children_[rank] = {process, report.files[0], ready.files[0]};
  }

  Child children_[2];
};

TEST(TwoProcesses, ValuesAreRight) { Pair("values").expect_right(); }
TEST(TwoProcesses, ReplayWithChangedInputsEqualsEager) { Pair("replay").expect_right(); }
TEST(TwoProcesses, ALateRankIsWaitedFor) { Pair("late").expect_right(); }
TEST(TwoProcesses, FirstAndSteadyDeadlinesHoldForCapturedCallsToo) {
  Pair("deadlines").expect_right();
}
TEST(TwoProcesses, AChangeOfTheReserveAllocatesAndMeetsNothing) { Pair("reserves").expect_right(); }
TEST(TwoProcesses, TwoHundredGroupsLeaveNothing) { Pair("many groups").expect_right(); }
TEST(TwoProcesses, TheCallersPointersCarryAGroup) { Pair("pointers").expect_right(); }
TEST(TwoProcesses, PoisonChangesNothing) {
  Pair("poisoned", {{"MEGAMOE_POISON", "1"}}).expect_right();
}

TEST(TwoProcesses, AKilledRankEndsTheOtherInTimeAndANewPairRunsAtOnce) {
  Pair pair("killed");
  const Report killed = pair.join(1);
  EXPECT_EQ(killed.status, -1);
  const Report survivor = pair.join(0);
  EXPECT_THAT(survivor.text,
              AllOf(HasSubstr("rank 0, call 2"), HasSubstr("rank 1"), HasSubstr("waiting for"),
                    HasSubstr("the process of rank 1 has ended")));
  EXPECT_GT(survivor.status, 0);
  // Its deadline is 1 s; it starts to wait 0.2 s after the other has died.
  EXPECT_LT(survivor.end - killed.end, 1s + 2s);
  Pair("values").expect_right();
}

TEST(TwoProcesses, ASkippedCallIsNamedAndResetBringsTheGroupBack) {
  Pair pair("skipped");
  EXPECT_THAT(pair.join(0).text,
              AllOf(HasSubstr("then right"), HasSubstr("rank 0, call 5"),
                    HasSubstr("waiting for the counts of rank 1"),
                    HasSubstr("rank 1 is at call 4, this rank at 5: it is late, or skipped one")));
  EXPECT_THAT(pair.join(1).text, AllOf(HasSubstr("then right"), HasSubstr("rank 0 gave up")));
}

TEST(TwoProcesses, OneStoppedForThreeSecondsIsSurvived) {
  Pair pair("stopped");
  ASSERT_TRUE(pair.wait_ready(1));
  std::this_thread::sleep_for(3s);
  pair.signal(1, SIGCONT);
  pair.expect_right();
}

TEST(TwoProcesses, DifferentShapesAreRefusedByBoth) {
  Pair pair("different shapes");
  for (int rank = 0; rank < 2; ++rank) {
    const Report report = pair.join(rank);
    EXPECT_THAT(report.text,
                AllOf(HasSubstr("hidden = 256 (rank 0), hidden = 384 (rank 1)"),
                      HasSubstr("max_tokens_per_rank = 200 (rank 0), max_tokens_per_rank = 201"),
                      HasSubstr("layout hash")));
    EXPECT_GT(report.status, 0);
  }
}

TEST(TwoProcesses, WhatOneCannotRunBothRefuse) {
  Pair pair("invalid on one");
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(pair.join(rank).text, AllOf(HasSubstr("hidden = 100 (rank 1)"), HasSubstr("128")));
}

#ifdef MEGAMOE_TEST_CUDA
TEST(TwoProcesses, AKernelThatHoldsSmsDoesNotStopACall) { Pair("held").expect_right(); }

TEST(TwoProcesses, OneGpuForBothIsRefusedByBoth) {
  Pair pair("one gpu", {{"MEGAMOE_RANKS_PER_GPU", ""}});
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(pair.join(rank).text, AllOf(HasSubstr("ranks 0 and 1 have the same GPU"),
                                            HasSubstr("MEGAMOE_RANKS_PER_GPU is 1")));
}

/// The program beside this binary: its exit status.
int run_program(const std::string& arguments) {
  const std::string command = "timeout 60 \"$(dirname \"$(readlink /proc/" +
                              std::to_string(getpid()) + "/exe)\")/../../src/cli/megamoe\" " +
                              arguments + " > /dev/null";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(TwoProcesses, TheCommandLineRunsAProcessForEachGpu) {
  const std::string layer =
      "run --hidden 512 --intermediate 256 --experts 16 --top-k 4 --backend cuda --tokens 40 "
      "--repeat 5 ";
  EXPECT_EQ(run_program(layer + "--processes --ranks 2"), 0);
  EXPECT_EQ(run_program(layer + "--processes --ranks 2 --reserved-sms 4"), 0);
}
#endif

}  // namespace

void tell_ready() { EXPECT_EQ(write(kReadyFile, "", 1), 1); }

namespace {

int run_rank(const std::string& scenario) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string text;
  try {
    JoinOptions join = rank_from_environment().join;
    join.deadline = 20s;
    text = run_scenario(scenario, join);
  } catch (const Error& error) {
    text = error.what();
  }
  const bool written =
      write(kReportFile, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return text == "right" && written ? 0 : 1;
}

}  // namespace
}  // namespace megamoe

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], megamoe::kRankFlag) == 0) return megamoe::run_rank(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
#ifdef MEGAMOE_TEST_CUDA
  const megamoe::Devices found = megamoe::find_devices_apart();
  if (found.usable.size() < 2 && !::testing::GTEST_FLAG(list_tests)) {
    std::fprintf(stderr, "FAILED: %zu usable GPUs of the 2 needed: %s\n", found.usable.size(),
                 found.reason.c_str());
    return 1;
  }
#endif
  return RUN_ALL_TESTS();
}
