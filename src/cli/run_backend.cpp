#include "cli/run_backend.hpp"

#include <string>

#include <fmt/format.h>

#include "host/devices.hpp"
#include "megamoe/error.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

/// The flags and values that only the CPU backend takes.
std::string why_cpu_only(const RunRequest& request, const Problem& p) {
  if (request.cpu_ctas) return "--ctas is for the CPU; --num-sms limits a GPU";
  if (request.waves > 1) return fmt::format("--waves = {}; GPUs run 1", request.waves);
  if (p.precision != Precision::fp8)
    return fmt::format("precision = {}; GPUs run fp8", name(p.precision));
  if (p.activation.kind != ActivationKind::swiglu)
    return fmt::format("activation = {}; GPUs run swiglu", name(p.activation.kind));
  return {};
}

}  // namespace

std::string why_too_few_gpus(const Devices& found, bool virtual_ranks, const Problem& p) {
  constexpr int kMost = SymmetricMemory::kMaxVirtualRanks;
  const auto gpus = static_cast<int>(found.usable.size());
  if (gpus == 0) return found.reason;
  if (virtual_ranks) {
    if (p.ranks <= kMost) return {};
    return fmt::format("--ranks = {}; a GPU takes up to {} virtual ranks", p.ranks, kMost);
  }
  if (p.ranks <= gpus) return {};
  return fmt::format("--ranks = {} need as many GPUs, {} found; --virtual puts up to {} on one",
                     p.ranks, gpus, kMost);
}

int device_of_launched(const LauncherRank& rank, const Devices& found) {
  const std::vector<int>& usable = found.usable;
  if (usable.empty()) throw Error(ErrorCode::unsupported, found.reason);
  // A launcher may show each process its own GPU alone.
  if (usable.size() == 1) return usable.front();
  const auto at = static_cast<std::size_t>(rank.local_rank);
  if (at < usable.size()) return usable[at];
  throw Error(ErrorCode::unsupported, fmt::format("LOCAL_RANK = {}, and there are {} usable GPUs",
                                                  rank.local_rank, usable.size()));
}

namespace {

std::string why_no_gpus(const RunRequest& request, const Problem& problem) {
  // Processes that are forked after CUDA was started cannot use it.
  const Devices found = request.processes ? find_devices_apart() : find_devices();
  if (!request.launcher) return why_too_few_gpus(found, request.virtual_ranks, problem);
  try {
    device_of_launched(*request.launcher, found);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

Backend choose_backend(const RunRequest& request, const Problem& problem) {
  if (request.backend == Backend::cpu) return Backend::cpu;
  std::string reason = why_cpu_only(request, problem);
  if (reason.empty()) reason = why_no_gpus(request, problem);
  if (reason.empty()) return Backend::cuda;
  if (request.backend == Backend::automatic) return Backend::cpu;
  throw Error(ErrorCode::unsupported,
              fmt::format("--backend cuda: {}; the nearest that works is cpu", reason));
}

}  // namespace megamoe::cli
