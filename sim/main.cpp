#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/commands.hpp"

namespace {

constexpr const char* kUsage =
    "usage: megamoe_sim run [SCENARIO|all] [--seeds N] [--first S] [--mutant NAME]\n"
    "       megamoe_sim replay SCENARIO --seed S [--mutant NAME]\n"
    "       megamoe_sim mutants [--seeds N]\n"
    "       megamoe_sim explore [CASE|all] [--deep] [--trace]\n"
    "       megamoe_sim model\n"
    "       megamoe_sim prove [--seeds N] [--deep]      mutants, explore and model\n"
    "       megamoe_sim list\n";

}  // namespace

int main(int argc, char** argv) {
  megamoe::sim::Options options;
  if (argc < 2) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::string command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--seeds" && has_value) {
      options.seeds = std::strtoull(argv[++i], nullptr, 10);
    } else if ((word == "--seed" || word == "--first") && has_value) {
      options.first_seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--mutant" && has_value) {
      options.mutant = argv[++i];
    } else if (word == "--deep") {
      options.deep = true;
    } else if (word == "--trace") {
      options.trace = true;
    } else if (word.rfind("--", 0) != 0) {
      options.name = word;
    } else {
      std::fprintf(stderr, "megamoe_sim: unknown option '%s'\n%s", word.c_str(), kUsage);
      return 2;
    }
  }
  if (command == "run") return megamoe::sim::command_run(options);
  if (command == "replay") return megamoe::sim::command_replay(options);
  if (command == "mutants") return megamoe::sim::command_mutants(options);
  if (command == "explore") return megamoe::sim::command_explore(options);
  if (command == "model") return megamoe::sim::command_model();
  if (command == "prove") return megamoe::sim::command_prove(options);
  if (command == "list") return megamoe::sim::command_list();
  std::fprintf(stderr, "megamoe_sim: unknown command '%s'\n%s", command.c_str(), kUsage);
  return 2;
}
