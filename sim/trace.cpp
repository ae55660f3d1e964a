#include "sim/trace.hpp"

#include <algorithm>

namespace megamoe::sim {

std::string Trace::text(const Line& line, const WordText& word) {
  char head[160];
  std::snprintf(head, sizeof head, "%7llu  %-34s %s", static_cast<unsigned long long>(line.step),
                to_string(line.agent->who).c_str(), line.what);
  std::string text = head;
  char rest[96];
  if (line.word == kNoWord) {
    std::snprintf(rest, sizeof rest, " %llu", static_cast<unsigned long long>(line.value));
    return text.append(rest);
  }
  // Tagged words read as {tag|value}.
  const auto tag = static_cast<unsigned>(line.value >> 32U);
  const auto value = static_cast<unsigned>(line.value);
  text.append(" ").append(word(line.word));
  if (tag != 0) {
    std::snprintf(rest, sizeof rest, " = {%u|%u}", tag, value);
  } else {
    std::snprintf(rest, sizeof rest, " = %u", value);
  }
  text.append(rest);
  if (line.age == 0) return text;
  std::snprintf(rest, sizeof rest, "  (passed over %u newer)", line.age);
  return text.append(rest);
}

std::string Trace::tail(std::size_t lines, const WordText& word) const {
  const std::size_t shown = std::min({lines, count_, kKept});
  std::string all;
  for (std::size_t i = count_ - shown; i < count_; ++i) all += text(lines_[i % kKept], word) + "\n";
  return all;
}

}  // namespace megamoe::sim
