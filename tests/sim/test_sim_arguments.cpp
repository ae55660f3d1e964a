// Runs the built simulator: what it refuses, and with which status.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

struct Result {
  int status;
  std::string text;  ///< both streams
};

Result sim(const std::string& arguments) {
  const std::string command = "timeout 20 " MEGAMOE_SIM " " + arguments + " 2>&1 </dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  Result result{-1, {}};
  if (pipe == nullptr) return result;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    result.text += static_cast<char>(c);
  const int raw = pclose(pipe);
  if (WIFEXITED(raw)) result.status = WEXITSTATUS(raw);
  return result;
}

TEST(SimArguments, NumbersAreReadWhole) {
  for (const std::string option : {"--seeds", "--seed", "--first"}) {
    for (const std::string bad :
         {"abc", "1x", "-1", "+1", "' 1'", "''", "1.5", "0x10", "18446744073709551616"}) {
      const Result result = sim("run replay " + option + " " + bad);
      const std::string shown = bad.front() == '\'' ? bad.substr(1, bad.size() - 2) : bad;
      const std::string low = option == "--seeds" ? "1" : "0";
      EXPECT_EQ(result.status, 2) << option << " " << bad;
      EXPECT_EQ(result.text, "megamoe_sim: " + option + " = '" + shown +
                                 "' is not a whole number from " + low + " to 2^64 - 1\n");
    }
    const Result missing = sim("run replay " + option);
    EXPECT_EQ(missing.status, 2);
    EXPECT_EQ(missing.text, "megamoe_sim: " + option + " needs a value\n");
  }
  EXPECT_EQ(sim("run replay --seeds 0").status, 2);
  EXPECT_EQ(sim("run replay --mutant").status, 2);
}

TEST(SimArguments, GoodOnesRun) {
  EXPECT_EQ(sim("run replay --seeds 2 --first 18446744073709551000").status, 0);
  EXPECT_EQ(sim("list").status, 0);
}

}  // namespace
