#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/trace_timeline.hpp"

namespace megamoe::cli {
namespace {

/// Far more than the lists of a CTA.
constexpr int kThreadsPerCta = 100;

/// Nanoseconds as microseconds, exactly.
std::string us_text(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

std::string perfetto_json(const TracedCall& call) {
  const std::uint64_t zero = time_range(call).first_ns;
  std::string json = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":" + quoted(call.title) +
                     "},\"traceEvents\":[";
  bool first = true;
  const auto add = [&](const std::string& event) {
    json += first ? "\n" : ",\n";
    json += event;
    first = false;
  };
  std::set<int> ranks;
  for (const TraceList& list : call.lists) {
    const int thread = list.cta * kThreadsPerCta + list.list;
    const std::string where = fmt::format("\"pid\":{},\"tid\":{}", list.rank, thread);
    if (ranks.insert(list.rank).second) {
      add(fmt::format(R"({{"ph":"M","name":"process_name",{},"args":{{"name":"rank {}"}}}})", where,
                      list.rank));
    }
    add(fmt::format(R"({{"ph":"M","name":"thread_name",{},"args":{{"name":"CTA {} {} {}"}}}})",
                    where, list.cta, role(list), list.list));
    for (const Span& span : spans(list)) {
      add(fmt::format(
          R"({{"ph":"X","name":"{}","cat":"{}",{},"ts":{},"dur":{},"args":{{"index":{}}}}})",
          span.label, name(span.activity), where, us_text(span.begin_ns - zero),
          us_text(span.end_ns - span.begin_ns), span.index));
    }
    for (const TraceEvent& event : list.events) {
      add(fmt::format(R"({{"ph":"i","s":"t","name":"{}",{},"ts":{},"args":{{"index":{}}}}})",
                      name(event.what), where, us_text(event.ns - zero), event.index));
    }
  }
  return json + "\n]}\n";
}

}  // namespace megamoe::cli
