#include "cli/arguments.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/suggest.hpp"
#include "config/refuse.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

/// Refuses what the parser would let through, or says worse: unknown flags, before their values are
/// looked at; a flag with an empty value; a flag where a value is due; a second value.
void check_shape(const CLI::App& app, const Arguments& arguments) {
  const std::vector<std::string> flags = long_flags(app);
  const std::vector<std::string_view> names(flags.begin(), flags.end());
  std::set<std::string> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-h") continue;
    const std::string flag = argument.substr(0, argument.find('='));
    if (flag.rfind("--", 0) != 0) refuse(fmt::format("unexpected argument '{}'", argument));
    if (std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      refuse(fmt::format("unknown flag '{}'{}", flag, close_suggestion(flag, names)));
    }
    const bool takes_value = app.get_option(flag)->get_expected_min() > 0;
    const bool joined = flag.size() < argument.size();
    if (!takes_value && joined) refuse(fmt::format("{} takes no value", flag));
    if (!takes_value) continue;
    const bool missing = joined ? flag.size() + 1 == argument.size()
                                : i + 1 == arguments.size() || arguments[i + 1].empty() ||
                                      arguments[i + 1].rfind("--", 0) == 0;
    if (missing) refuse(fmt::format("{} needs a value", flag));
    if (!given.insert(flag).second) refuse(fmt::format("{} is given twice", flag));
    if (!joined) ++i;
  }
}

}  // namespace

CLI::Option* add_text(CLI::App& app, const std::string& flag, std::optional<std::string>& text,
                      const std::string& value_name, const std::string& help) {
  const auto keep = [&text](const std::string& value) { text = value; };
  return app.add_option_function<std::string>(flag, keep, help)->type_name(value_name);
}

bool parse_arguments(CLI::App& app, const Arguments& arguments, Io& io) {
  const auto asks_help = [](const std::string& a) { return a == "--help" || a == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), asks_help)) {
    io.out << app.help();
    return false;
  }
  check_shape(app, arguments);
  Arguments reversed(arguments.rbegin(), arguments.rend());  // the order that the parser takes
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
  return true;
}

}  // namespace megamoe::cli
