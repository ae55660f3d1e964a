#include <charconv>
#include <cstdint>
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
    "       megamoe_sim model [PART OF A NAME|all] [--deep]\n"
    "       megamoe_sim prove [--seeds N] [--deep]      mutants, explore and model\n"
    "       megamoe_sim list\n";

/// The whole of `text` as a number in low..2^64 - 1, or ends the program with status 2.
std::uint64_t number(const std::string& option, const std::string& text, std::uint64_t low) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= low) return value;
  std::fprintf(stderr, "megamoe_sim: %s = '%s' is not a whole number from %llu to 2^64 - 1\n",
               option.c_str(), text.c_str(), static_cast<unsigned long long>(low));
  std::exit(2);
}

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
    const bool takes_value =
        word == "--seeds" || word == "--seed" || word == "--first" || word == "--mutant";
    if (takes_value && !has_value) {
      std::fprintf(stderr, "megamoe_sim: %s needs a value\n", word.c_str());
      return 2;
    }
    if (word == "--seeds") {
      options.seeds = number(word, argv[++i], 1);
    } else if (word == "--seed" || word == "--first") {
      options.first_seed = number(word, argv[++i], 0);
    } else if (word == "--mutant") {
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
  if (command == "model") return megamoe::sim::command_model(options);
  if (command == "prove") return megamoe::sim::command_prove(options);
  if (command == "list") return megamoe::sim::command_list();
  std::fprintf(stderr, "megamoe_sim: unknown command '%s'\n%s", command.c_str(), kUsage);
  return 2;
}
