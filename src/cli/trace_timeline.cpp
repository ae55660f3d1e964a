#include "cli/trace_timeline.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace megamoe::cli {
namespace {

constexpr std::array<const char*, 19> kMarkNames = {
    "none",         "entered",       "routed",        "planned",     "tile_claimed",
    "inputs_ready", "tile_loaded",   "chunk_claimed", "slot_free",   "chunk_pulled",
    "tile_begun",   "tile_computed", "tile_stored",   "tile_popped", "tile_published",
    "sum_claimed",  "arrived",       "summed",        "left"};

struct Meaning {
  Activity activity;
  const char* label;
};

/// What ends with `mark`, whatever came before.
Meaning before(TraceMark mark) {
  switch (mark) {
    case TraceMark::routed:
      return {Activity::route, "route"};
    case TraceMark::planned:
      return {Activity::wait, "wait for counts, plan"};
    case TraceMark::tile_claimed:
    case TraceMark::chunk_claimed:
      return {Activity::other, "claim"};
    case TraceMark::inputs_ready:
      return {Activity::wait, "wait for rows of the tile"};
    case TraceMark::tile_loaded:
      return {Activity::load, "start the tile's loads"};
    case TraceMark::slot_free:
      return {Activity::wait, "wait for entries and pool slot"};
    case TraceMark::chunk_pulled:
      return {Activity::pull, "pull rows"};
    case TraceMark::tile_begun:
      return {Activity::wait, "wait for the first stage"};
    case TraceMark::tile_computed:
      return {Activity::math, "products"};
    case TraceMark::tile_stored:
      return {Activity::store, "activation, quantise, store"};
    case TraceMark::tile_popped:
      return {Activity::wait, "wait for a finished tile"};
    case TraceMark::tile_published:
      return {Activity::publish, "publish"};
    case TraceMark::sum_claimed:
      return {Activity::other, "to the sum"};
    case TraceMark::arrived:
      return {Activity::wait, "wait for contributions"};
    case TraceMark::summed:
      return {Activity::sum, "sum"};
    case TraceMark::left:
      return {Activity::other, "roles, then leave"};
    case TraceMark::none:
    case TraceMark::entered:
      break;
  }
  return {Activity::other, "other"};
}

}  // namespace

const char* name(TraceMark mark) {
  const auto index = static_cast<std::size_t>(mark);
  return index < kMarkNames.size() ? kMarkNames[index] : "unknown";
}

const char* name(Activity activity) {
  constexpr std::array<const char*, kNumActivities> kNames = {
      "wait", "route", "load", "pull", "math", "store", "publish", "sum", "other"};
  return kNames[static_cast<std::size_t>(activity)];
}

const char* color(Activity activity) {
  constexpr std::array<const char*, kNumActivities> kColors = {"#d62728", "#8c564b", "#9ecae1",
                                                               "#17becf", "#2ca02c", "#98df8a",
                                                               "#9467bd", "#1f77b4", "#d9d9d9"};
  return kColors[static_cast<std::size_t>(activity)];
}

std::vector<Span> spans(const TraceList& list) {
  std::vector<Span> all;
  const auto& events = list.events;
  if (events.size() == 1) {
    const Meaning meaning = before(events[0].what);
    all.push_back({events[0].ns, events[0].ns, meaning.activity, meaning.label, events[0].index});
  }
  for (std::size_t i = 1; i < events.size(); ++i) {
    const TraceEvent& end = events[i];
    const Meaning meaning = before(end.what);
    all.push_back({events[i - 1].ns, std::max(end.ns, events[i - 1].ns), meaning.activity,
                   meaning.label, end.index});
  }
  return all;
}

std::string role(const TraceList& list) {
  for (const TraceEvent& event : list.events) {
    switch (event.what) {
      case TraceMark::entered:
        return "CTA";
      case TraceMark::tile_claimed:
        return "scheduler";
      case TraceMark::chunk_claimed:
        return "courier";
      case TraceMark::tile_popped:
        return "publisher";
      case TraceMark::tile_begun:
      case TraceMark::tile_computed:
        return "math";
      default:
        break;
    }
  }
  return "other";
}

TimeRange time_range(const TracedCall& call) {
  TimeRange range{~std::uint64_t{0}, 0};
  for (const TraceList& list : call.lists) {
    for (const TraceEvent& event : list.events) {
      range.first_ns = std::min(range.first_ns, event.ns);
      range.last_ns = std::max(range.last_ns, event.ns);
    }
  }
  return range.last_ns == 0 ? TimeRange{} : range;
}

void append_lists(TracedCall& call, int rank, const std::vector<TraceEvent>& events, int ctas,
                  int lists, int capacity) {
  for (int cta = 0; cta < ctas; ++cta) {
    for (int list = 0; list < lists; ++list) {
      const auto first = events.begin() + (static_cast<long>(cta) * lists + list) * capacity;
      const auto last = std::find_if(first, first + capacity, [](const TraceEvent& event) {
        return event.what == TraceMark::none;
      });
      if (first == last) continue;
      if (last == first + capacity) ++call.full_lists;
      call.lists.push_back({.rank = rank, .cta = cta, .list = list, .events = {first, last}});
    }
  }
}

}  // namespace megamoe::cli
