#include "cli/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megamoe::cli {
namespace {

/// Longer input is never a slip of a name, and the distance takes quadratic time.
constexpr std::size_t kLongestName = 64;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool is_close(const std::string& typed, std::string_view name) {
  const std::string other = lower(name);
  if (typed.size() >= 3 && (other.find(typed) != std::string::npos)) return true;
  const int allowed = std::max(1, static_cast<int>(std::max(typed.size(), other.size()) / 4));
  return edit_distance(typed, other) <= allowed;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<int> d((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return d[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

std::string close_suggestion(std::string_view typed, std::span<const std::string_view> names) {
  if (typed.empty() || typed.size() > kLongestName) return {};
  const std::string wanted = lower(typed);
  std::vector<std::string_view> near;
  for (const std::string_view name : names) {
    if (lower(name) == wanted) return fmt::format("; did you mean {}?", name);
    if (is_close(wanted, name)) near.push_back(name);
  }
  if (near.empty()) return {};
  return fmt::format("; did you mean {}?", fmt::join(near, ", "));
}

std::string suggestion(std::string_view typed, std::span<const std::string_view> names) {
  const std::string near = close_suggestion(typed, names);
  return near.empty() ? fmt::format("; known: {}", fmt::join(names, ", ")) : near;
}

}  // namespace megamoe::cli
