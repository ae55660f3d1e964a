// One rank of a run that a launcher such as torchrun has started.
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/run_backend.hpp"
#include "cli/run_call.hpp"
#include "cli/run_cuda.hpp"
#include "host/join/meeting.hpp"

namespace megamoe::cli {
namespace {

template <class Value>
nlohmann::json bytes_of(const std::vector<Value>& values) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(values.data());
  return nlohmann::json::binary({first, first + values.size() * sizeof(Value)});
}

template <class Value>
std::vector<Value> values_of(const nlohmann::json& bytes) {
  const auto& binary = bytes.get_binary();
  std::vector<Value> values(binary.size() / sizeof(Value));
  std::copy_n(binary.data(), values.size() * sizeof(Value),
              reinterpret_cast<std::uint8_t*>(values.data()));
  return values;
}

std::string pack(const RunOutput& output) {
  const nlohmann::json json = {{"y", bytes_of(output.y.at(0))},
                               {"received", output.rows_received.at(0)},
                               {"expert_rows", output.expert_rows},
                               {"times_us", output.times_us},
                               {"differs", output.differs},
                               {"memory_bytes", output.memory_bytes},
                               {"config", output.config}};
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

/// Adds a rank's output: its rows at the end, the slowest rank's times.
void add(RunOutput& all, const std::string& packed) {
  const nlohmann::json json = nlohmann::json::from_cbor(packed);
  const auto rows = json.at("expert_rows").get<std::vector<std::int64_t>>();
  const auto times = json.at("times_us").get<std::vector<double>>();
  const auto differs = json.at("differs").get<std::vector<std::uint8_t>>();
  if (all.y.empty()) {
    all.config = json.at("config");
    all.memory_bytes = json.at("memory_bytes");
    all.times_us.assign(times.size(), 0);
    all.differs.assign(differs.size(), 0);
  }
  all.y.push_back(values_of<std::uint16_t>(json.at("y")));
  all.rows_received.push_back(json.at("received"));
  all.expert_rows.insert(all.expert_rows.end(), rows.begin(), rows.end());
  for (std::size_t i = 0; i < std::min(times.size(), all.times_us.size()); ++i)
    all.times_us[i] = std::max(all.times_us[i], times[i]);
  for (std::size_t i = 0; i < std::min(differs.size(), all.differs.size()); ++i)
    all.differs[i] |= differs[i];
}

}  // namespace

RunOutput call_launched(const RunRequest& request, const RunCase& run, Io& io) {
  JoinOptions options = request.launcher->join;
  options.deadline =
      std::max<std::chrono::nanoseconds>(join_deadline(request), std::chrono::seconds(60));
  const std::unique_ptr<join::Meeting> meeting = join::meet(options);
  options.all_gather = [&](const std::string& text) { return meeting->all_gather(text); };
  std::ostringstream nowhere;
  Io quiet{.out = nowhere, .err = nowhere};
  Io& shown = options.rank == 0 ? io : quiet;
  RunOutput own;
  if (request.backend == Backend::cuda) {
    const int device = device_of_launched(*request.launcher, find_devices());
    own = call_cuda(request, run, SymmetricMemory::cuda_processes(options, device), shown);
  } else {
    own = call_group(request, run, SymmetricMemory::shared(options), shown);
  }
  RunOutput all;
  for (const std::string& packed : meeting->all_gather(pack(own))) add(all, packed);
  return all;
}

}  // namespace megamoe::cli
