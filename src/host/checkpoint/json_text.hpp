#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace megamoe {

/// Bounds that are checked before a byte is parsed, so that a hostile file can neither exhaust the
/// stack nor build an absurd tree.
struct JsonLimits {
  std::size_t bytes = 0;
  int depth = 0;  ///< objects and arrays inside one another
};

/// Parses a whole JSON document. `what` begins every message ("file x.json").
/// Throws Error(invalid_file) for text over the limits, malformed text, and an object that has the
/// same key twice (the second would silently replace the first).
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits, const std::string& what);

/// Text from a file as it may stand in a message: short, plain ASCII, anything else as \xNN.
std::string printable(std::string_view text);

/// A readable name of a JSON value's type, with the value where it is short: `"F32"`, `an object`.
std::string describe(const nlohmann::json& value);

}  // namespace megamoe
