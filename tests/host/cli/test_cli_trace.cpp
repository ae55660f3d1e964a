// Traces made from made-up events, and the verb's arguments.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>

#include <gmock/gmock.h>

#include "cli/svg.hpp"
#include "cli/trace_timeline.hpp"
#include "in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLists = 4, kCapacity = 6;

/// The memory of a traced rank with 2 CTAs: a scheduler, a math warp, nothing, the CTA's own.
std::vector<TraceEvent> recorded(std::uint64_t start) {
  std::vector<TraceEvent> memory(2 * kLists * kCapacity);
  const auto put = [&](int cta, int list, int at, std::uint64_t ns, TraceMark what,
                       std::uint32_t index = 0) {
    memory[static_cast<std::size_t>((cta * kLists + list) * kCapacity + at)] = {start + ns, what,
                                                                                index};
  };
  for (int cta = 0; cta < 2; ++cta) {
    const std::uint64_t late = cta == 0 ? 0 : 250;
    put(cta, 0, 0, late + 1000, TraceMark::tile_claimed, 7);
    put(cta, 0, 1, late + 4000, TraceMark::inputs_ready, 7);
    put(cta, 0, 2, late + 4500, TraceMark::tile_loaded, 7);
    put(cta, 1, 0, late + 5000, TraceMark::tile_computed, 3);
    put(cta, 1, 1, late + 5750, TraceMark::tile_stored, 3);
    put(cta, 3, 0, late, TraceMark::entered);
    put(cta, 3, 1, late + 9000, TraceMark::left);
  }
  return memory;
}

constexpr std::size_t kEventsOfARank = 14;

TracedCall two_ranks() {
  TracedCall call{.title = "a <title> & \"more\""};
  for (int rank = 0; rank < 2; ++rank)
    append_lists(call, rank, recorded(1'000'000), 2, kLists, kCapacity);
  return call;
}

TEST(CliTrace, ListsAreReadUntilTheirFirstEmptyPlace) {
  const TracedCall call = two_ranks();
  ASSERT_EQ(call.lists.size(), 12U);
  EXPECT_EQ(call.full_lists, 0U);
  EXPECT_EQ(call.lists[0].events.size(), 3U);
  EXPECT_EQ(role(call.lists[0]), "scheduler");
  EXPECT_EQ(role(call.lists[1]), "math");
  EXPECT_EQ(role(call.lists[2]), "CTA");
  EXPECT_EQ(call.lists[2].list, 3);
  EXPECT_EQ(call.lists[3].cta, 1);
  EXPECT_EQ(call.lists[6].rank, 1);
  EXPECT_EQ(time_range(call).first_ns, 1'000'000U);
  EXPECT_EQ(time_range(call).last_ns, 1'009'250U);

  std::vector<TraceEvent> full = recorded(1);
  for (int i = 0; i < kCapacity; ++i)
    full[static_cast<std::size_t>(i)] = {1000, TraceMark::tile_claimed, 0};
  TracedCall other;
  append_lists(other, 0, full, 2, kLists, kCapacity);
  EXPECT_EQ(other.full_lists, 1U);
}

TEST(CliTrace, SpansLieBetweenEventsAndSayWaits) {
  const std::vector<Span> all = spans(two_ranks().lists[0]);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].activity, Activity::wait);
  EXPECT_EQ(all[0].end_ns - all[0].begin_ns, 3000U);
  EXPECT_EQ(all[0].index, 7U);
  EXPECT_EQ(all[1].activity, Activity::load);
  EXPECT_EQ(all[1].begin_ns, all[0].end_ns);
  // one event alone, and a clock that goes back: no span is lost, none has a negative length
  EXPECT_EQ(spans({.events = {{5, TraceMark::arrived, 0}}}).size(), 1U);
  const auto back = spans({.events = {{9, TraceMark::sum_claimed, 0}, {5, TraceMark::arrived, 0}}});
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].begin_ns, back[0].end_ns);
  EXPECT_EQ(time_range({}).last_ns, 0U);
}

TEST(CliTrace, EveryMarkHasANameAndAMeaning) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(TraceMark::left); ++i) {
    names.emplace_back(name(static_cast<TraceMark>(i)));
    EXPECT_FALSE(names.back().empty());
    EXPECT_EQ(std::count(names.begin(), names.end(), names.back()), 1) << names.back();
  }
  EXPECT_STREQ(name(TraceMark::summed), "summed");
  EXPECT_STREQ(name(TraceMark::left), "left");
  EXPECT_STREQ(name(static_cast<TraceMark>(99)), "unknown");
}

TEST(CliTrace, PerfettoHasEveryEventAndWholeSlices) {
  const TracedCall call = two_ranks();
  const auto json = nlohmann::json::parse(perfetto_json(call));
  EXPECT_EQ(json.at("otherData").at("title"), call.title);
  std::map<std::string, int> kinds;
  double end = 0;
  for (const auto& event : json.at("traceEvents")) {
    const auto kind = event.at("ph").get<std::string>();
    ++kinds[kind];
    if (kind == "M") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0.0);
    if (kind != "X") continue;
    EXPECT_GE(event.at("dur").get<double>(), 0.0);
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_EQ(kinds["i"], static_cast<int>(2 * kEventsOfARank));
  EXPECT_EQ(kinds["X"], 2 * 2 * (2 + 1 + 1)) << "one slice less than events, of each list";
  EXPECT_EQ(kinds["M"], 2 + 12) << "a name for each rank and for each list";
  EXPECT_EQ(kinds.size(), 3U) << "nothing that begins and never ends";
  EXPECT_DOUBLE_EQ(end, 9.25);
  const auto& all = json.at("traceEvents");
  const auto wait = std::find_if(all.begin(), all.end(), [](const auto& event) {
    return event.at("ph") == "X" && event.at("cat") == "wait";
  });
  ASSERT_NE(wait, all.end());
  EXPECT_DOUBLE_EQ(wait->at("ts"), 1.0);
  EXPECT_DOUBLE_EQ(wait->at("dur"), 3.0);
  EXPECT_EQ(wait->at("args").at("index"), 7);
}

TEST(CliTrace, PerfettoOfNothingIsAnEmptyTrace) {
  const auto json = nlohmann::json::parse(perfetto_json({}));
  EXPECT_TRUE(json.at("traceEvents").empty());
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Fails unless every tag is closed, in order, and text has no bare special characters.
void expect_xml(const std::string& text) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)((?: [a-zA-Z0-9-]+=\"[^\"<]*\")*)(/?)>");
  std::string between = std::regex_replace(text, tag, "");
  EXPECT_EQ(between.find_first_of("<>"), std::string::npos) << "a malformed tag";
  between = std::regex_replace(between, std::regex("&(amp|lt|gt|quot);"), "");
  EXPECT_EQ(between.find('&'), std::string::npos);
  for (auto at = std::sregex_iterator(text.begin(), text.end(), tag); at != std::sregex_iterator();
       ++at) {
    const std::smatch& match = *at;
    if (match[1] == "/") {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), match[2]);
      open.pop_back();
    } else if (match[4] != "/") {
      open.push_back(match[2]);
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(CliTrace, TheTimelineHasEverySpanAndIsXml) {
  const TracedCall call = two_ranks();
  const std::string svg = timeline_svg(call);
  expect_xml(svg);
  EXPECT_THAT(svg, HasSubstr("a &lt;title&gt; &amp; &quot;more&quot;: 9.25 us"));
  for (const char* lane : {"rank 0 CTA 0", "rank 0 CTA 1", "rank 1 CTA 0", "rank 1 CTA 1"})
    EXPECT_THAT(svg, HasSubstr(std::string(">") + lane + "<"));
  // each span starts one piece of a path
  EXPECT_EQ(count(svg, "v3h-"), 2U * 2 * (2 + 1 + 1));
  EXPECT_EQ(count(svg, std::string("fill=\"") + color(Activity::wait) + "\"><title>"), 4U)
      << "a red path in each CTA";
  expect_xml(timeline_svg({}));
}

TEST(CliTrace, SvgEscapesText) {
  Svg svg(10, 10);
  svg.text(0, 0, "start", "a<b>&\"\x01");
  EXPECT_THAT(svg.document(), HasSubstr(">a&lt;b&gt;&amp;&quot;?<"));
  expect_xml(svg.document());
}

TEST(CliTrace, Arguments) {
  const Arguments shape = {"trace", "--hidden", "256", "--intermediate", "128", "--experts",
                           "4",     "--top-k",  "2"};
  const auto refusal = [&](const Arguments& more) { return refusal_of(joined(shape, more)); };
  EXPECT_THAT(refusal({}), HasSubstr("give --perfetto FILE, --svg FILE or both"));
  EXPECT_THAT(refusal({"--svg", "x", "--perfetto", "x"}), HasSubstr("the same file: x"));
  EXPECT_THAT(refusal({"--svg", "no/such/folder/x.svg"}),
              AllOf(HasSubstr("--svg"), HasSubstr("no/such/folder")));
  EXPECT_THAT(refusal({"--svg", "x.svg", "--events", "3"}), HasSubstr("--events = 3"));
  EXPECT_THAT(refusal({"--svg", "x.svg", "--ranks", "3"}), HasSubstr("experts"));
  EXPECT_THAT(refusal({"--svg", "x.svg", "--checkpoint", "y"}), HasSubstr("unknown flag"));
  EXPECT_THAT(refusal_of({"trace", "--svg", "x.svg"}), HasSubstr("--hidden is missing"));
  EXPECT_THAT(megamoe({"trace", "--help"}).out,
              AllOf(HasSubstr("--perfetto"), HasSubstr("--svg"), HasSubstr("--block-rows")));
}

TEST(CliTrace, NeedsAsManyGpusAsRanks) {
  const std::string path = ::testing::TempDir() + "megamoe_trace_needs_gpus.svg";
  EXPECT_THAT(refusal_of({"trace", "--hidden", "256", "--intermediate", "128", "--experts", "72",
                          "--top-k", "2", "--ranks", "72", "--svg", path}),
              HasSubstr("tracing needs GPUs: "));
  EXPECT_FALSE(std::ifstream(path).good()) << "nothing is written";
}

}  // namespace
}  // namespace megamoe::cli
