#include "cli/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

[[noreturn]] void refuse_number(std::string_view flag, std::string_view text,
                                std::string_view why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} = {} {}", flag, text, why));
}

[[noreturn]] void not_a(std::string_view flag, std::string_view text, std::string_view what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} = '{}' is not {}", flag, text, what));
}

template <class Value>
std::errc parse_all(std::string_view text, Value& value) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc() && result.ptr != end) return std::errc::invalid_argument;
  // Out of range is only said of text that is a number to its end.
  if (result.ec == std::errc::result_out_of_range && result.ptr != end) {
    return std::errc::invalid_argument;
  }
  return result.ec;
}

}  // namespace

std::int64_t parse_integer(std::string_view flag, std::string_view text, std::int64_t low,
                           std::int64_t high) {
  std::int64_t value = 0;
  const std::errc error = parse_all(text, value);
  if (error == std::errc::invalid_argument) not_a(flag, text, "a whole number");
  if (error != std::errc() || value < low || value > high) {
    refuse_number(flag, text, fmt::format("is outside {}..{}", low, high));
  }
  return value;
}

int integer_or(const std::optional<std::string>& text, std::string_view flag, int low, int high,
               int otherwise) {
  return text ? static_cast<int>(parse_integer(flag, *text, low, high)) : otherwise;
}

std::uint64_t parse_seed(std::string_view flag, std::string_view text) {
  std::uint64_t value = 0;
  const std::errc error = parse_all(text, value);
  if (error == std::errc::invalid_argument) not_a(flag, text, "a whole number from 0 on");
  if (error != std::errc()) {
    refuse_number(flag, text,
                  fmt::format("is outside 0..{}", std::numeric_limits<std::uint64_t>::max()));
  }
  return value;
}

double parse_real(std::string_view flag, std::string_view text, double low, double high) {
  double value = 0;
  const std::errc error = parse_all(text, value);
  // from_chars also reads "inf" and "nan"; the negated comparison refuses them.
  if (error == std::errc::invalid_argument || value != value) not_a(flag, text, "a number");
  if (error != std::errc() || !(value >= low && value <= high)) {
    refuse_number(flag, text, fmt::format("is outside {}..{}", low, high));
  }
  return value;
}

std::vector<std::int64_t> parse_integer_list(std::string_view flag, std::string_view text,
                                             std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> values;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    values.push_back(parse_integer(flag, text.substr(begin, comma - begin), low, high));
    if (comma == text.size()) return values;
    begin = comma + 1;
  }
}

}  // namespace megamoe::cli
