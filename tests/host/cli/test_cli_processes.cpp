// `megamoe run --processes`: a process for each rank, what happens when one dies or stops.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/children.hpp"
#include "megamoe/error.hpp"
#include "tests/host/cli/in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Processes whose parent is `parent`, oldest first.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string stat = contents(entry.path() / "stat");
    const std::size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos) continue;
    std::istringstream rest(stat.substr(name_end + 2));
    char state = 0;
    pid_t its_parent = 0;
    if (rest >> state >> its_parent && its_parent == parent)
      found.push_back(static_cast<pid_t>(std::stol(entry.path().filename())));
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_there(pid_t process) { return kill(process, 0) == 0; }

/// The built program as a process, killed with its children at the end.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MEGAMOE_BINARY);
    process_ = fork();
    if (process_ != 0) return;
    if (std::freopen((base_ + ".out").c_str(), "w", stdout) == nullptr ||
        std::freopen((base_ + ".err").c_str(), "w", stderr) == nullptr)
      _exit(98);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv(MEGAMOE_BINARY, pointers.data());
    _exit(99);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (process_ > 0) kill(process_, SIGKILL), waitpid(process_, nullptr, 0);
    std::remove((base_ + ".out").c_str());
    std::remove((base_ + ".err").c_str());
  }

  [[nodiscard]] pid_t process() const { return process_; }

  /// The processes of its ranks, once all are there.
  std::vector<pid_t> ranks(std::size_t count) {
    std::vector<pid_t> found;
    for (const auto end = Clock::now() + 20s; found.size() < count && Clock::now() < end;) {
      std::this_thread::sleep_for(5ms);
      found = children_of(process_);
    }
    EXPECT_EQ(found.size(), count);
    return found;
  }

  /// Its exit status, -1 if it was killed or does not end.
  int join(std::chrono::seconds limit = 60s) {
    int raw = 0;
    for (const auto end = Clock::now() + limit; waitpid(process_, &raw, WNOHANG) == 0;) {
      if (Clock::now() > end) return -1;
      std::this_thread::sleep_for(1ms);
    }
    process_ = 0;
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
  }
  [[nodiscard]] std::string out() const { return contents(base_ + ".out"); }
  [[nodiscard]] std::string err() const { return contents(base_ + ".err"); }

 private:
  static std::string unique() {
    static int count = 0;
    return std::to_string(getpid()) + "_" + std::to_string(count++);
  }
  std::string base_ = ::testing::TempDir() + "megamoe_processes_" + unique();
  pid_t process_ = 0;
};

const std::vector<std::string> kLayer = {"run", "--hidden",  "256", "--intermediate",
                                         "128", "--experts", "16",  "--top-k",
                                         "4",   "--ctas",    "2",   "--json"};

std::vector<std::string> layer_with(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = kLayer;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Processes, GiveTheSameAsOneProcess) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--ranks", "4", "--tokens", "5,0,9,30", "--repeat", "3"},
        {"--ranks", "1", "--precision", "mxfp4"},
        {"--ranks", "8", "--precision", "bf16", "--shared-experts", "1", "--waves", "2"}}) {
    const std::string file = ::testing::TempDir() + "megamoe_processes_y";
    const auto run = [&](const std::vector<std::string>& flags) {
      std::vector<std::string> arguments = layer_with(more);
      arguments.insert(arguments.end(), flags.begin(), flags.end());
      const Result result = megamoe(arguments);
      EXPECT_EQ(result.status, kDone) << result.err << result.out;
      nlohmann::json json = nlohmann::json::parse(result.out);
      json.erase("time_us");
      json["y"] = contents(file);
      return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    EXPECT_EQ(run({"--processes", "--output", file}), run({"--output", file}));
    std::remove(file.c_str());
  }
}

TEST(Processes, ShowATableWithoutJson) {
  std::vector<std::string> arguments = layer_with({"--ranks", "2", "--processes"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--json"));
  const Result result = megamoe(arguments);
  EXPECT_EQ(result.status, kDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nok\n"));
}

TEST(Processes, ExcludeVirtualRanks) {
  const Result result = megamoe(layer_with({"--virtual", "--processes"}));
  EXPECT_EQ(result.status, kBadUsage);
  EXPECT_THAT(result.err, HasSubstr("--virtual and --processes exclude each other"));
}

// Who is killed may be calling or still joining; either way the others name it in time.
TEST(Processes, AKilledOneIsReportedByAllOthersInTime) {
  constexpr auto kDeadline = 3s;
  // On a machine that is busy with other things everything takes longer, this run as well.
  const auto before = Clock::now();
  EXPECT_EQ(megamoe(layer_with({"--processes", "--ranks", "8", "--repeat", "20"})).status, kDone);
  const auto quick_run = Clock::now() - before;
  Program program(layer_with(
      {"--processes", "--ranks", "8", "--tokens", "20", "--repeat", "1000000", "--deadline", "3"}));
  const std::vector<pid_t> ranks = program.ranks(8);
  ASSERT_EQ(ranks.size(), 8U);
  std::this_thread::sleep_for(500ms);
  const auto killed = Clock::now();
  kill(ranks[5], SIGKILL);
  EXPECT_EQ(program.join(), kCheckFailed) << program.err();
  EXPECT_LT(Clock::now() - killed, kDeadline + 1s + quick_run);
  const nlohmann::json json = nlohmann::json::parse(program.out());
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_THAT(json.at("fault").get<std::string>(),
              HasSubstr("the process of rank 5 was ended by signal 9"));
  EXPECT_THAT(program.err(), HasSubstr("the process of rank 5 was ended by signal 9"));
  ASSERT_EQ(json.at("rank_faults").size(), 8U);
  for (std::size_t r = 0; r < 8; ++r) {
    EXPECT_THAT(
        json.at("rank_faults")[r].get<std::string>(),
        HasSubstr(r == 5 ? "the process of rank 5 was ended" : "the process of rank 5 has ended"))
        << r;
  }
}

TEST(Processes, OneThatIsStoppedAndContinuedIsSurvived) {
  Program program(
      layer_with({"--processes", "--ranks", "4", "--repeat", "300", "--deadline", "60"}));
  const std::vector<pid_t> ranks = program.ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  kill(ranks[1], SIGSTOP);
  std::this_thread::sleep_for(1s);
  kill(ranks[1], SIGCONT);
  EXPECT_EQ(program.join(), kDone) << program.err();
  EXPECT_EQ(nlohmann::json::parse(program.out()).at("ok"), true);
}

TEST(Processes, DieWithTheProgram) {
  Program program(layer_with({"--processes", "--ranks", "4", "--repeat", "1000000"}));
  const std::vector<pid_t> ranks = program.ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  std::this_thread::sleep_for(300ms);  // who is killed while joining leaves a name in /dev/shm
  kill(program.process(), SIGKILL);
  const auto end = Clock::now() + 20s;
  for (const pid_t rank : ranks) {
    while (is_there(rank) && Clock::now() < end) std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(is_there(rank));
  }
}

/// The environment that a launcher gives to a process, for as long as this lives.
class LauncherVariables {
 public:
  LauncherVariables(int rank, int ranks, int port) {
    set("RANK", rank), set("WORLD_SIZE", ranks), set("MEGAMOE_PORT", port);
    set("MASTER_PORT", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
  }
  LauncherVariables(const LauncherVariables&) = delete;
  LauncherVariables& operator=(const LauncherVariables&) = delete;
  ~LauncherVariables() {
    for (const char* variable :
         {"RANK", "WORLD_SIZE", "MEGAMOE_PORT", "MASTER_PORT", "MASTER_ADDR"})
      unsetenv(variable);
  }

 private:
  static void set(const char* variable, int value) {
    setenv(variable, std::to_string(value).c_str(), 1);
  }
};

TEST(Processes, OfALauncherAreRanksOfOneRun) {
  const int port = 20000 + getpid() % 20000;
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const LauncherVariables variables(rank, 4, port);
    ranks.push_back(std::make_unique<Program>(layer_with({"--deadline", "20", "--repeat", "3"})));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->join(), kDone) << rank->err();
  const auto json = nlohmann::json::parse(ranks[0]->out());
  EXPECT_EQ(json.at("ranks"), 4);
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("bitwise_repeatable"), true);
  EXPECT_EQ(json.at("received").size(), 4U);
  EXPECT_EQ(ranks[1]->out(), "");
}

TEST(Children, SayHowTheyEnded) {
  Children children(3, [](int index) {
    if (index == 1) raise(SIGTERM);
    if (index == 2) _exit(7);
  });
  children.join(20s);
  EXPECT_EQ(children.trouble(0), "");
  EXPECT_THAT(children.trouble(1), HasSubstr("was ended by signal 15"));
  EXPECT_EQ(children.trouble(2), "ended with status 7");
}

TEST(Children, WhoeverHangsIsKilled) {
  const auto begin = Clock::now();
  Children children(2, [](int index) {
    if (index == 1) raise(SIGSTOP);
  });
  children.join(200ms);
  EXPECT_EQ(children.trouble(0), "");
  EXPECT_EQ(children.trouble(1), "did not end within 0.2 s of the first and was killed");
  EXPECT_LT(Clock::now() - begin, 20s);
}

}  // namespace
}  // namespace megamoe::cli
