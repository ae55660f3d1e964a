#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "roles/trace_events.hpp"

// One traced call: what the CTAs recorded, and the spans of time between.

namespace megamoe::cli {

/// What one warp recorded, or its CTA as a whole, in order.
struct TraceList {
  int rank = 0;
  int cta = 0;
  int list = 0;  ///< warp of the CTA; the last one is the CTA's own
  std::vector<TraceEvent> events = {};
};

struct TracedCall {
  std::string title = {};
  std::vector<TraceList> lists = {};  ///< those with events, in order of rank, CTA, list
  std::size_t full_lists = 0;         ///< that had no room for more events
};

/// What a warp does between two events.
enum class Activity : std::uint8_t { wait, route, load, pull, math, store, publish, sum, other };
inline constexpr int kNumActivities = 9;

const char* name(Activity activity);
const char* color(Activity activity);
const char* name(TraceMark mark);

struct Span {
  std::uint64_t begin_ns = 0, end_ns = 0;
  Activity activity = Activity::other;
  std::string label = {};  ///< more precise than the activity
  std::uint32_t index = 0;
};

/// The spans of a list, one between each event and the next; of a single event, one of no length.
std::vector<Span> spans(const TraceList& list);

/// What the list's warp is: scheduler, courier, publisher, math, CTA, or other.
std::string role(const TraceList& list);

/// First and last time of all events; {0, 0} of none.
struct TimeRange {
  std::uint64_t first_ns = 0, last_ns = 0;
};
TimeRange time_range(const TracedCall& call);

/// Rebuilds the lists from a TraceBuffer's memory, [ctas][lists][capacity].
void append_lists(TracedCall& call, int rank, const std::vector<TraceEvent>& events, int ctas,
                  int lists, int capacity);

/// For ui.perfetto.dev and chrome://tracing: a process per rank, a thread per list, every event as
/// an instant and every span as a complete slice; times in microseconds from the first event.
std::string perfetto_json(const TracedCall& call);
/// A lane for each CTA with a line for each of its warps; colours by activity, waits red.
std::string timeline_svg(const TracedCall& call);

}  // namespace megamoe::cli
