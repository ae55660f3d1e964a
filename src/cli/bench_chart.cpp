#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "cli/bench_result.hpp"
#include "cli/svg.hpp"
#include "cli/table.hpp"

namespace megamoe::cli {
namespace {

constexpr double kWidth = 760, kHeight = 460;
constexpr double kLeft = 70, kRight = 150, kTop = 50, kBottom = 50;

/// A logarithmic axis between two values, drawn between two coordinates.
struct Axis {
  double low, high;
  double from, to;
  [[nodiscard]] double at(double value) const {
    const double part = (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return from + (to - from) * part;
  }
};

struct Series {
  const char* label;
  const char* color;
  std::vector<std::pair<double, double>> points;  ///< tokens, us; positive
};

std::vector<Series> series_of(const std::vector<BenchRow>& rows) {
  std::vector<Series> all = {{"fused", "#1f6fb2", {}},
                             {"with staging", "#d2691e", {}},
                             {"lower bound", "#6a6a6a", {}},
                             {"unfused chain", "#7a3fa0", {}}};
  for (const BenchRow& row : rows) {
    const double x = std::max(1, row.tokens);  // 0 tokens have no place on the axis but 1's
    const std::array<double, 4> us = {row.time_us, row.staged_us, row.bound_us.value_or(0),
                                      row.unfused_us.value_or(0)};
    for (std::size_t i = 0; i < us.size(); ++i)
      if (us[i] > 0) all[i].points.emplace_back(x, us[i]);
  }
  return all;
}

/// Grid lines with their numbers: one per token count, 1-2-5 steps of time.
void draw_grid(Svg& svg, const Axis& x, const Axis& y, const std::vector<BenchRow>& rows) {
  for (const BenchRow& row : rows) {
    const double at = x.at(std::max(1, row.tokens));
    svg.line(at, y.from, at, y.to);
    svg.text(at, y.from + 18, "middle", std::to_string(row.tokens));
  }
  for (double decade = 1; decade <= y.high; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double us = decade * step;
      if (us < y.low || us > y.high) continue;
      svg.line(x.from, y.at(us), x.to, y.at(us));
      svg.text(x.from - 8, y.at(us) + 4, "end", short_number(us));
    }
  }
}

void draw_curve(Svg& svg, const Series& series, std::size_t index, const Axis& x, const Axis& y) {
  std::string path;
  for (const auto& [tokens, us] : series.points)
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x.at(tokens), y.at(us));
  if (path.empty()) return;
  svg.curve(path, series.color);
  for (const auto& [tokens, us] : series.points)
    svg.circle(x.at(tokens), y.at(us), 3, series.color);
  const double row = kTop + 16 + 20 * static_cast<double>(index);
  svg.rect(kWidth - kRight + 14, row - 6, 12, 4, series.color);
  svg.text(kWidth - kRight + 32, row, "start", series.label);
}

}  // namespace

std::string bench_chart(const BenchRequest& request, const BenchMeasurement& measured) {
  const std::vector<BenchRow> rows = bench_rows(request, measured);
  const std::vector<Series> all = series_of(rows);
  Axis x{1, 2, kLeft, kWidth - kRight}, y{1e30, 1, kHeight - kBottom, kTop};
  for (const BenchRow& row : rows) x.high = std::max(x.high, static_cast<double>(row.tokens));
  for (const Series& series : all) {
    for (const auto& [tokens, us] : series.points) {
      y.low = std::min(y.low, us * 0.8);
      y.high = std::max(y.high, us * 1.25);
    }
  }
  y.low = std::min(y.low, y.high / 2);
  const Problem& p = request.problem();
  Svg svg(kWidth, kHeight);
  svg.text(kLeft, 24, "start",
           fmt::format("{}, {} experts, {}, {} {}rank{} on {}",
                       request.shape.model ? request.shape.model->name : "custom", p.experts,
                       name(p.precision), p.ranks, request.virtual_ranks ? "virtual " : "",
                       p.ranks == 1 ? "" : "s", measured.machine));
  draw_grid(svg, x, y, rows);
  for (std::size_t i = 0; i < all.size(); ++i) draw_curve(svg, all[i], i, x, y);
  svg.text((x.from + x.to) / 2, kHeight - 10, "middle", "tokens per rank");
  svg.text(8, kTop - 10, "start", "microseconds");
  return svg.document();
}

}  // namespace megamoe::cli
