#pragma once

#include <optional>
#include <string>

#include "cli/io.hpp"

// Forward declarations keep the large header of the parser out of most files.
namespace CLI {  // NOLINT(readability-identifier-naming): the parser's name
class App;
class Option;
}  // namespace CLI

namespace megamoe::cli {

/// Adds an option that takes one value and keeps its text, to be parsed with the other flags.
CLI::Option* add_text(CLI::App& app, const std::string& flag, std::optional<std::string>& text,
                      const std::string& value_name, const std::string& help);

/// Parses a verb's arguments. True: go on; false: help was asked for and printed. Throws
/// Error(invalid_argument) in one line, naming the argument and near flags.
bool parse_arguments(CLI::App& app, const Arguments& arguments, Io& io);

}  // namespace megamoe::cli
