#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "sim/agent.hpp"

namespace megamoe::sim {

/// The last steps of a run, or all of them as they happen.
class Trace {
 public:
  struct Line {
    u64 step = 0;
    const Agent* agent = nullptr;
    const char* what = "";  ///< "load acquire gpu", "pull row", ...
    u32 word = kNoWord;     ///< of WordMemory
    u64 value = 0;
    u32 age = 0;  ///< of a load: how many newer stores it passed over
  };
  static constexpr u32 kNoWord = ~0U;

  using WordText = std::function<std::string(u32 word)>;
  explicit Trace(std::FILE* live) : live_(live), lines_(kKept) {}

  void add(const Line& line, const WordText& word) {
    lines_[count_++ % kKept] = line;
    if (live_ != nullptr) std::fputs((text(line, word) + "\n").c_str(), live_);
  }
  /// The last `lines` steps, one a line.
  [[nodiscard]] std::string tail(std::size_t lines, const WordText& word) const;

 private:
  static constexpr std::size_t kKept = 64;
  static std::string text(const Line& line, const WordText& word);

  std::FILE* live_;
  std::vector<Line> lines_;
  std::size_t count_ = 0;
};

}  // namespace megamoe::sim
