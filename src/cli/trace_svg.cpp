#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cli/svg.hpp"
#include "cli/table.hpp"
#include "cli/trace_timeline.hpp"

namespace megamoe::cli {
namespace {

constexpr double kLeft = 110, kPlot = 1400, kRight = 30, kTop = 64, kBottom = 30;
constexpr double kLineHeight = 3, kLineStep = 4, kGap = 4;
constexpr double kLeastWidth = 0.2;  ///< of a span, so that none is lost

/// All lines of one CTA of one rank.
struct Lane {
  int rank, cta;
  std::vector<const TraceList*> lists;
};

std::vector<Lane> lanes_of(const TracedCall& call) {
  std::map<std::pair<int, int>, std::vector<const TraceList*>> by_cta;
  for (const TraceList& list : call.lists) by_cta[{list.rank, list.cta}].push_back(&list);
  std::vector<Lane> lanes;
  lanes.reserve(by_cta.size());
  for (auto& [key, lists] : by_cta) lanes.push_back({key.first, key.second, std::move(lists)});
  return lanes;
}

double height_of(const Lane& lane) {
  return std::max(14.0, kLineStep * static_cast<double>(lane.lists.size())) + kGap;
}

/// Microseconds between two marks of the axis: a 1-2-5 step, 5 to 14 of them.
double step_us(double length_us) {
  double step = std::pow(10.0, std::floor(std::log10(length_us / 5)));
  for (const double factor : {2.0, 2.5}) {
    if (length_us / step > 14) step *= factor;
  }
  return step;
}

void draw_lane(Svg& svg, const Lane& lane, double top, const TimeRange& range) {
  const double scale =
      kPlot / static_cast<double>(std::max<std::uint64_t>(1, range.last_ns - range.first_ns));
  const auto at = [&](std::uint64_t ns) {
    return kLeft + scale * static_cast<double>(ns - range.first_ns);
  };
  // One path for each activity keeps the file small.
  std::array<std::string, kNumActivities> paths;
  double y = top;
  for (const TraceList* list : lane.lists) {
    for (const Span& span : spans(*list)) {
      const double width = std::max(kLeastWidth, at(span.end_ns) - at(span.begin_ns));
      paths[static_cast<std::size_t>(span.activity)] += fmt::format(
          "M{:.2f} {:.1f}h{:.2f}v{}h-{:.2f}z", at(span.begin_ns), y, width, kLineHeight, width);
    }
    y += kLineStep;
  }
  svg.text(kLeft - 8, top + 11, "end", fmt::format("rank {} CTA {}", lane.rank, lane.cta));
  for (int i = 0; i < kNumActivities; ++i) {
    const auto activity = static_cast<Activity>(i);
    const std::string& path = paths[static_cast<std::size_t>(i)];
    if (path.empty()) continue;
    svg.area(path, color(activity),
             fmt::format("rank {} CTA {}: {}", lane.rank, lane.cta, name(activity)));
  }
}

}  // namespace

std::string timeline_svg(const TracedCall& call) {
  const std::vector<Lane> lanes = lanes_of(call);
  const TimeRange range = time_range(call);
  double height = kTop + kBottom;
  for (const Lane& lane : lanes) height += height_of(lane);
  Svg svg(kLeft + kPlot + kRight, height);
  const double length_us = static_cast<double>(range.last_ns - range.first_ns) * 1e-3;
  svg.text(kLeft, 20, "start",
           fmt::format("{}: {} us from the first CTA's entry to the last one's end", call.title,
                       short_number(length_us)));
  for (int i = 0; i < kNumActivities; ++i) {
    const double x = kLeft + 90.0 * i;
    svg.rect(x, 30, 12, 8, color(static_cast<Activity>(i)));
    svg.text(x + 17, 39, "start", name(static_cast<Activity>(i)));
  }
  if (length_us > 0) {
    const double step = step_us(length_us);
    for (double us = 0; us <= length_us; us += step) {
      const double x = kLeft + kPlot * us / length_us;
      svg.line(x, kTop - 4, x, height - kBottom);
      svg.text(x, height - kBottom + 16, "middle", short_number(us) + " us");
    }
  }
  double top = kTop;
  for (const Lane& lane : lanes) {
    draw_lane(svg, lane, top, range);
    top += height_of(lane);
  }
  return svg.document();
}

}  // namespace megamoe::cli
