#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/doctor.hpp"
#include "cli/table.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

/// A group of processes shares each rank's symmetric memory through /dev/shm.
constexpr std::uint64_t kSmallShm = std::uint64_t{1} << 30U;

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string yes_no(bool value) { return value ? "yes" : "no"; }

const GpuFacts* gpu_of(const MachineFacts& facts, int index) {
  const auto at = std::find_if(facts.gpus.begin(), facts.gpus.end(),
                               [&](const GpuFacts& gpu) { return gpu.index == index; });
  return at == facts.gpus.end() ? nullptr : &*at;
}

bool both_supported(const MachineFacts& facts, const PeerFacts& pair) {
  const GpuFacts* a = gpu_of(facts, pair.from);
  const GpuFacts* b = gpu_of(facts, pair.to);
  return a != nullptr && b != nullptr && a->supported && b->supported;
}

void advise_pairs(const MachineFacts& facts, std::vector<std::string>& lines) {
  for (const PeerFacts& pair : facts.peers) {
    if (!both_supported(facts, pair)) continue;
    const std::string who = fmt::format("GPU {} to GPU {}", pair.from, pair.to);
    if (!pair.access) {
      lines.push_back(who +
                      ": no peer access; ranks on both need NVLink between them, with access "
                      "control services and the IOMMU's translation off");
    } else if (!pair.native_atomics) {
      lines.push_back(who +
                      ": no native atomics over the link; ranks on both need NVLink, not PCIe");
    } else if (!pair.problem.empty()) {
      lines.push_back(fmt::format("{}: {}", who, pair.problem));
    }
  }
}

std::string measured(const std::optional<double>& value) {
  return value ? short_number(*value, 3) : "-";
}

std::string limit_text(const std::optional<std::uint64_t>& bytes) {
  return bytes ? bytes_text(static_cast<double>(*bytes)) : "unlimited";
}

std::string gpus_text(const MachineFacts& facts) {
  if (facts.gpus.empty()) return {};
  Table table({"GPU", "name", "arch", "SMs", "SMs of\na call", "memory", "supported", "POSIX\nfds",
               "fabric", "multicast"});
  for (const GpuFacts& gpu : facts.gpus) {
    table.add({std::to_string(gpu.index), gpu.name, gpu.arch, std::to_string(gpu.sms),
               gpu.supported ? std::to_string(gpu.sm_budget) : "-",
               bytes_text(static_cast<double>(gpu.memory_bytes)), yes_no(gpu.supported),
               yes_no(gpu.posix_descriptors), yes_no(gpu.fabric), yes_no(gpu.multicast)});
  }
  return table.text();
}

std::string peers_text(const MachineFacts& facts) {
  if (facts.peers.empty()) return {};
  Table table({"pair", "access", "atomics", "GB/s", "flag us"});
  for (const PeerFacts& pair : facts.peers) {
    table.add({fmt::format("{} -> {}", pair.from, pair.to), yes_no(pair.access),
               yes_no(pair.native_atomics), measured(pair.bandwidth_gbs),
               measured(pair.latency_us)});
  }
  return table.text();
}

nlohmann::json or_null(const auto& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json version_json(int version) {
  return version == 0 ? nlohmann::json(nullptr) : nlohmann::json(cuda_version(version));
}

nlohmann::json gpu_json(const GpuFacts& gpu) {
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"arch", gpu.arch},
          {"sms", gpu.sms},
          {"sm_budget", gpu.sm_budget},
          {"memory_bytes", gpu.memory_bytes},
          {"free_bytes", gpu.free_bytes},
          {"supported", gpu.supported},
          {"posix_descriptors", gpu.posix_descriptors},
          {"fabric", gpu.fabric},
          {"multicast", gpu.multicast}};
}

nlohmann::json peer_json(const PeerFacts& pair) {
  return {{"from", pair.from},
          {"to", pair.to},
          {"access", pair.access},
          {"native_atomics", pair.native_atomics},
          {"bandwidth_gbs", or_null(pair.bandwidth_gbs)},
          {"latency_us", or_null(pair.latency_us)}};
}

}  // namespace

std::vector<std::string> advice(const MachineFacts& facts) {
  std::vector<std::string> lines;
  if (!facts.cuda_build) {
    lines.emplace_back(
        "no CUDA kernels in this build: CPU backend only; build with -DMEGAMOE_CUDA=ON (preset "
        "cuda, nvcc 13 or newer)");
  }
  if (facts.driver == 0) {
    lines.emplace_back(
        "no driver: CPU backend only; install NVIDIA's driver, release 580 or newer");
    return lines;
  }
  if (facts.runtime > 0 && facts.driver / 1000 < facts.runtime / 1000) {
    lines.push_back(fmt::format(
        "the driver runs CUDA {}, this build needs {}: CPU backend only; update the driver to "
        "release 580 or newer",
        cuda_version(facts.driver), cuda_version(facts.runtime)));
    return lines;
  }
  if (!facts.cuda_build) return lines;
  if (facts.gpus.empty()) {
    lines.push_back(fmt::format("no GPU: CPU backend only; the driver says: {}",
                                facts.gpu_reason.empty() ? "none found" : facts.gpu_reason));
    return lines;
  }
  const bool some = std::any_of(facts.gpus.begin(), facts.gpus.end(),
                                [](const GpuFacts& gpu) { return gpu.supported; });
  if (!some) {
    lines.push_back(fmt::format(
        "no supported GPU: CPU backend only; the kernels need compute capability 9.0 (Hopper), GPU "
        "{} ({}) has {}",
        facts.gpus.front().index, facts.gpus.front().name, facts.gpus.front().arch));
  }
  advise_pairs(facts, lines);
  return lines;
}

std::vector<std::string> notes(const MachineFacts& facts) {
  std::vector<std::string> lines;
  for (const GpuFacts& gpu : facts.gpus) {
    if (!gpu.supported)
      lines.push_back(fmt::format("GPU {} ({}, {}) is not used", gpu.index, gpu.name, gpu.arch));
  }
  if (!facts.nccl.found) lines.emplace_back("libnccl.so.2 is not found; nothing here needs it yet");
  const auto& shm = facts.limits.shm_free_bytes;
  if (!shm) {
    lines.emplace_back("/dev/shm cannot be asked; processes on the CPU share memory there");
  } else if (*shm < kSmallShm) {
    lines.push_back(fmt::format(
        "/dev/shm has {} free; processes on the CPU share their memory there (in a container: "
        "--shm-size)",
        bytes_text(static_cast<double>(*shm))));
  }
  return lines;
}

std::string doctor_text(const MachineFacts& facts) {
  std::string text = fmt::format("megamoe  {}, {}\n", version(),
                                 facts.cuda_build ? "with CUDA kernels" : "without CUDA kernels");
  text += facts.driver == 0 ? "driver   none\n"
                            : fmt::format("driver   CUDA {}{}\n", cuda_version(facts.driver),
                                          facts.driver_release.empty()
                                              ? ""
                                              : fmt::format(", release {}", facts.driver_release));
  if (facts.runtime > 0) text += fmt::format("runtime  CUDA {}\n", cuda_version(facts.runtime));
  text += fmt::format("NCCL     {}\n", facts.nccl.found ? facts.nccl.version : "not found");
  const LimitFacts& limits = facts.limits;
  text += fmt::format("limits   /dev/shm {} free of {}, locked memory {}, open files {}\n",
                      limits.shm_free_bytes ? limit_text(limits.shm_free_bytes) : "?",
                      limits.shm_bytes ? limit_text(limits.shm_bytes) : "?",
                      limit_text(limits.memlock_bytes),
                      limits.open_files ? std::to_string(*limits.open_files) : "unlimited");
  for (const std::string& table : {gpus_text(facts), peers_text(facts)})
    text += table.empty() ? table : fmt::format("\n{}", table);
  text += '\n';
  for (const std::string& line : notes(facts)) text += "note: " + line + "\n";
  const std::vector<std::string> lines = advice(facts);
  for (const std::string& line : lines) text += "missing: " + line + "\n";
  return text + (lines.empty() ? "will run\n" : "will not run as it should on GPUs\n");
}

std::string doctor_json(const MachineFacts& facts) {
  nlohmann::json gpus = nlohmann::json::array(), peers = nlohmann::json::array();
  for (const GpuFacts& gpu : facts.gpus) gpus.push_back(gpu_json(gpu));
  for (const PeerFacts& pair : facts.peers) peers.push_back(peer_json(pair));
  const std::vector<std::string> lines = advice(facts);
  const LimitFacts& limits = facts.limits;
  const nlohmann::json json = {
      {"ok", lines.empty()},
      {"version", version()},
      {"cuda_build", facts.cuda_build},
      {"driver", version_json(facts.driver)},
      {"driver_release", facts.driver_release},
      {"runtime", version_json(facts.runtime)},
      {"gpus", gpus},
      {"peers", peers},
      {"nccl", {{"found", facts.nccl.found}, {"version", facts.nccl.version}}},
      {"limits",
       {{"shm_bytes", or_null(limits.shm_bytes)},
        {"shm_free_bytes", or_null(limits.shm_free_bytes)},
        {"memlock_bytes", or_null(limits.memlock_bytes)},
        {"open_files", or_null(limits.open_files)}}},
      {"advice", lines},
      {"notes", notes(facts)}};
  return json.dump(2);
}

}  // namespace megamoe::cli
