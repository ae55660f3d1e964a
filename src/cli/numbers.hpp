#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megamoe::cli {

// Each takes the whole text or throws Error(invalid_argument) that names the flag and the text:
// no sign but a leading '-', no blanks, no trailing characters, nothing out of range.

/// A decimal integer within low..high.
std::int64_t parse_integer(std::string_view flag, std::string_view text, std::int64_t low,
                           std::int64_t high);

/// The same where `text` was given, else `otherwise`.
int integer_or(const std::optional<std::string>& text, std::string_view flag, int low, int high,
               int otherwise);

/// A decimal integer within 0 .. 2^64 - 1.
std::uint64_t parse_seed(std::string_view flag, std::string_view text);

/// A decimal number within low..high; never infinite or NaN.
double parse_real(std::string_view flag, std::string_view text, double low, double high);

/// One or more integers within low..high, separated by commas.
std::vector<std::int64_t> parse_integer_list(std::string_view flag, std::string_view text,
                                             std::int64_t low, std::int64_t high);

}  // namespace megamoe::cli
