#include "cli/progress.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

namespace megamoe::cli {

Progress::Progress(std::ostream& terminal, bool enabled, std::string label, std::int64_t total)
    : terminal_(terminal), enabled_(enabled && total > 0), label_(std::move(label)), total_(total) {
  if (enabled_) draw();
}

Progress::~Progress() {
  if (!enabled_) return;
  terminal_ << '\r' << std::string(drawn_width_, ' ') << '\r' << std::flush;
}

void Progress::advance(std::int64_t steps) {
  done_ = std::min(total_, done_ + steps);
  if (!enabled_) return;
  if (std::chrono::steady_clock::now() - last_draw_ >= std::chrono::milliseconds(100)) draw();
}

void Progress::draw() {
  constexpr std::int64_t kWidth = 30;
  const auto filled = static_cast<std::size_t>(kWidth * done_ / total_);
  const std::string line =
      fmt::format("{} [{}{}] {}/{}", label_, std::string(filled, '#'),
                  std::string(static_cast<std::size_t>(kWidth) - filled, '.'), done_, total_);
  drawn_width_ = std::max(drawn_width_, line.size());
  terminal_ << '\r' << line << std::flush;
  last_draw_ = std::chrono::steady_clock::now();
}

bool stderr_is_terminal() {
  const char* const term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace megamoe::cli
