#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megamoe::cli {

/// The names close to a mistyped one, as "; did you mean a, b?", else all of them as
/// "; known: a, b, c".
std::string suggestion(std::string_view typed, std::span<const std::string_view> names);

/// As suggestion(), but empty when nothing is close.
std::string close_suggestion(std::string_view typed, std::span<const std::string_view> names);

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace megamoe::cli
