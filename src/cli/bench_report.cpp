#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench_result.hpp"
#include "cli/table.hpp"

namespace megamoe::cli {
namespace {

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

nlohmann::json shape_json(const BenchRequest& request) {
  const Problem& p = request.problem();
  nlohmann::json json = {{"experts", p.experts},
                         {"ranks", p.ranks},
                         {"virtual", request.virtual_ranks},
                         {"precision", name(p.precision)},
                         {"hidden", p.hidden},
                         {"intermediate", p.intermediate},
                         {"top_k", p.top_k},
                         {"shared_experts", p.shared_experts},
                         {"capacity", p.max_tokens_per_rank},
                         {"num_sms", request.num_sms},
                         {"reserved_sms", request.reserved_sms.value_or(0)},
                         {"routing", request.routing_name()},
                         {"seeds", request.seeds},
                         {"calls", request.repeat},
                         {"weight_sets", request.weight_sets},
                         {"flush", request.flush}};
  json["model"] =
      request.shape.model ? nlohmann::json(request.shape.model->name) : nlohmann::json();
  return json;
}

std::string optional_number(const std::optional<double>& value) {
  return value ? short_number(*value) : "-";
}

std::string head_text(const BenchRequest& request, const BenchMeasurement& measured) {
  const Problem& p = request.problem();
  std::string text = fmt::format(
      "{}: hidden {}, intermediate {}, {} experts, top-{}, {}; {} {}rank{} on {}\n"
      "{} calls per row, routing {} with seeds {} in turn, {} set{} of random weights in turn{}\n",
      request.shape.model ? request.shape.model->name : "custom", p.hidden, p.intermediate,
      p.experts, p.top_k, name(p.precision), p.ranks, request.virtual_ranks ? "virtual " : "",
      p.ranks == 1 ? "" : "s", measured.machine, request.repeat, request.routing_name(),
      fmt::join(request.seeds, ","), request.weight_sets, request.weight_sets == 1 ? "" : "s",
      request.flush ? ", L2 read through before each call" : "");
  for (const std::string& note : request.shape.notes) text += fmt::format("note: {}\n", note);
  if (rates_for(request, measured.machine) == nullptr) {
    text += fmt::format("note: no rates are known for {}; --gpu TYPE gives a bound\n",
                        measured.machine);
  }
  if (request.unfused) {
    const bool timed = std::any_of(measured.rows.begin(), measured.rows.end(),
                                   [](const BenchTimes& row) { return !row.unfused_us.empty(); });
    text += fmt::format("unfused: {}{}\n", timed ? "" : "not timed, ", measured.unfused_note);
  }
  return text + "\n";
}

/// What the columns mean.
std::string foot_text(const BenchRequest& request) {
  std::string text =
      "Time: median over calls of the longest over GPUs, device time. Spread: 10th to 90th "
      "percentile.\nBound: practical rates and the routing of the busiest GPU; mean bound: the "
      "mean load.\nRates are what the busiest GPU of the first routing had to do, over the "
      "time. Skew: between the GPUs' releases.\n";
  if (request.one_sender) text += "Tokens are rank 0's; the other ranks bring none.\n";
  if (request.unfused) {
    text +=
        "Unfused: staging, exchange, products per expert, activation, products, exchange and sum, "
        "one after another in a graph,\nwith counts known beforehand; same ids, same weights, "
        "output checked. Gain: unfused over the time with staging.\n";
  }
  return text;
}

}  // namespace

std::string bench_json(const BenchRequest& request, const BenchMeasurement& measured) {
  const std::string date = date_text();
  nlohmann::json list = nlohmann::json::array();
  for (const BenchRow& row : bench_rows(request, measured)) {
    nlohmann::json json = shape_json(request);
    json["machine"] = measured.machine;
    json["date"] = date;
    json["command"] = request.command;
    json["tokens"] = row.tokens;
    json["time_us"] = row.time_us;
    json["spread_us"] = row.spread_us;
    json["staged_us"] = row.staged_us;
    json["unfused_us"] = or_null(row.unfused_us);
    json["unfused_diff"] = or_null(row.unfused_diff);
    json["gain"] = or_null(row.gain);
    json["unfused_note"] =
        request.unfused ? nlohmann::json(measured.unfused_note) : nlohmann::json();
    json["peer_us"] = nullptr;
    json["bound_us"] = or_null(row.bound_us);
    json["mean_bound_us"] = or_null(row.mean_bound_us);
    json["fraction"] = or_null(row.fraction);
    json["tflops"] = row.tflops;
    json["hbm_gbs"] = row.hbm_gbs;
    json["nvlink_gbs"] = row.nvlink_gbs;
    json["skew_us"] = row.skew_us;
    json["config"] = row.config;
    list.push_back(std::move(json));
  }
  return list.dump(2);
}

std::string bench_text(const BenchRequest& request, const BenchMeasurement& measured) {
  const std::vector<BenchRow> rows = bench_rows(request, measured);
  const bool unfused = std::any_of(rows.begin(), rows.end(),
                                   [](const BenchRow& row) { return row.unfused_us.has_value(); });
  std::vector<std::string> header = {"tokens\nper rank", "time\nus",  "spread\nus",
                                     "with staging\nus", "bound\nus", "mean bound\nus",
                                     "fraction",         "TFLOP/s",   "HBM\nGB/s",
                                     "NVLink\nGB/s",     "skew\nus"};
  if (unfused) header.insert(header.begin() + 4, {"unfused\nus", "gain"});
  Table table(header);
  for (const BenchRow& row : rows) {
    std::vector<std::string> cells = {std::to_string(row.tokens),
                                      short_number(row.time_us),
                                      short_number(row.spread_us, 3),
                                      short_number(row.staged_us),
                                      optional_number(row.bound_us),
                                      optional_number(row.mean_bound_us),
                                      row.fraction ? fmt::format("{:.2f}", *row.fraction) : "-",
                                      short_number(row.tflops),
                                      short_number(row.hbm_gbs),
                                      short_number(row.nvlink_gbs),
                                      short_number(row.skew_us, 2)};
    if (unfused) {
      cells.insert(cells.begin() + 4, {optional_number(row.unfused_us),
                                       row.gain ? fmt::format("{:.2f}", *row.gain) : "-"});
    }
    table.add(std::move(cells));
  }
  return head_text(request, measured) + table.text() + foot_text(request);
}

}  // namespace megamoe::cli
