#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace megamoe::cli {

/// A bar of the form "label [#####.....] 12/24" on one line of a terminal, redrawn at most ten
/// times a second and wiped at the end. Where `enabled` is false (no terminal, --json) it writes
/// nothing.
class Progress {
 public:
  Progress(std::ostream& terminal, bool enabled, std::string label, std::int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void advance(std::int64_t steps = 1);

 private:
  void draw();

  std::ostream& terminal_;
  bool enabled_;
  std::string label_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  std::size_t drawn_width_ = 0;
  std::chrono::steady_clock::time_point last_draw_ = {};
};

/// True if standard error is a terminal that can redraw a line.
bool stderr_is_terminal();

}  // namespace megamoe::cli
