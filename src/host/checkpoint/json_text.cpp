#include "host/checkpoint/json_text.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe {
namespace {

using nlohmann::json;

/// The deepest nesting of `text`; brackets inside strings do not count.
int nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 120;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > kMost) out += "...";
  return out;
}

json parse_json(std::string_view text, const JsonLimits& limits, const std::string& what) {
  if (text.size() > limits.bytes) {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: JSON of {} bytes, expected at most {}",
                                                     what, text.size(), limits.bytes));
  }
  if (const int depth = nesting(text); depth > limits.depth) {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: JSON nested {} deep, expected at most {}",
                                                     what, depth, limits.depth));
  }
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto refuse_duplicates = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw Error(ErrorCode::invalid_file,
                    fmt::format("{}: key \"{}\" occurs twice in one object", what, printable(key)));
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), refuse_duplicates);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::invalid_file,
                fmt::format("{}: malformed JSON: {}", what, printable(e.what())));
  }
}

std::string describe(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return fmt::format("an array of {}", value.size());
    case json::value_t::string:
      return fmt::format("\"{}\"", printable(value.get_ref<const std::string&>()));
    case json::value_t::discarded:
    case json::value_t::binary:
      return "no JSON value";
    default:
      return value.dump();
  }
}

}  // namespace megamoe
