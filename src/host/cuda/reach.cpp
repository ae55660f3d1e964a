#include <algorithm>
#include <map>
#include <sstream>

#include "host/cuda/runtime.hpp"
#include "host/devices.hpp"
#include "host/environment.hpp"
#include "host/handshake.hpp"

namespace megamoe {
namespace {

/// What every process calls this GPU.
std::string gpu_name(int device) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string name;
  for (const char byte : properties.uuid.bytes)
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

/// The device that this process sees under the name, or -1.
int device_named(const std::string& name) {
  int count = 0;
  cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int device = 0; device < count; ++device) {
    if (gpu_name(device) == name) return device;
  }
  return -1;
}

constexpr const char* kFine = "fine";
constexpr const char* kUnseen = "unseen";

/// What this process knows about reaching the GPU of that name from its own.
std::string verdict(int device, const std::string& name) {
  const int other = device_named(name);
  if (other < 0) return kUnseen;
  if (other == device) return kFine;
  const std::string reason = why_unreachable(device, other);
  return reason.empty() ? kFine : reason;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void refuse_shared_gpus(const std::vector<std::string>& names, std::size_t ranks_per_gpu) {
  std::map<std::string, std::vector<std::size_t>> owners;
  for (std::size_t r = 0; r < names.size(); ++r) {
    std::vector<std::size_t>& ranks = owners[names[r]];
    ranks.push_back(r);
    if (ranks.size() <= ranks_per_gpu) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ranks {} have the same GPU ({}), MEGAMOE_RANKS_PER_GPU is {} "
                            "(cuda_virtual puts several ranks on one)",
                            fmt::join(ranks, " and "), names[r], ranks_per_gpu));
  }
}

}  // namespace

std::string why_unreachable(int a, int b) {
  int can = 0, atomics = 0;
  cuda::check(cudaDeviceCanAccessPeer(&can, a, b), "cudaDeviceCanAccessPeer");
  if (can == 0) return fmt::format("device {} cannot reach device {}", a, b);
  cuda::check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b),
              "cudaDeviceGetP2PAttribute");
  if (atomics == 0) return fmt::format("no native atomics from device {} to device {}", a, b);
  return {};
}

void check_reach(const AllGather& gather, int device) {
  const std::vector<std::string> names = gather(gpu_name(device));
  int ranks_per_gpu = 1;
  refuse_together(gather, trouble_of([&] { ranks_per_gpu = environment_ranks_per_gpu(); }));
  // Where ranks differ in it the least holds.
  for (const std::string& text : gather(std::to_string(ranks_per_gpu)))
    ranks_per_gpu = std::min(ranks_per_gpu, std::stoi(text));
  refuse_shared_gpus(names, static_cast<std::size_t>(ranks_per_gpu));
  std::string own;
  for (const std::string& name : names) own += verdict(device, name) + "\n";
  std::vector<std::vector<std::string>> verdicts;
  for (const std::string& text : gather(own)) {
    verdicts.push_back(lines_of(text));
    verdicts.back().resize(names.size(), kUnseen);
  }
  std::string reasons;
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = 0; b < names.size(); ++b) {
      const std::string& of_a = verdicts[a][b];
      if (of_a == kFine || of_a == kUnseen) continue;
      reasons +=
          fmt::format("{}from rank {} to rank {}: {}", reasons.empty() ? "" : "; ", a, b, of_a);
    }
  }
  if (!reasons.empty()) {
    throw Error(ErrorCode::unsupported,
                reasons +
                    " (NVLink between all GPUs is needed; device numbers are those of the "
                    "rank's process)");
  }
}

}  // namespace megamoe
