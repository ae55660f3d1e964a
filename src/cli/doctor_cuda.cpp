// GPUs and what lies between them, asked through the CUDA runtime.
#include <algorithm>
#include <memory>

#include <cuda.h>
#include <fmt/format.h>

#include "cli/doctor.hpp"
#include "host/cuda/event.hpp"
#include "host/cuda/launch_limits.hpp"
#include "host/devices.hpp"
#include "host/environment.hpp"
#include "kernels/link_probe.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cli {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceGuard;

constexpr std::size_t kPulledBytes = std::size_t{64} << 20U;
constexpr int kPulls = 5;
constexpr std::uint32_t kRounds = 1000;
constexpr std::uint64_t kPingDeadlineNs = 2'000'000'000;

/// A property that only the driver knows; false where it does not say.
bool driver_attribute(CUdevice_attribute attribute, int device) {
  const auto entry = [](const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess) cudaGetLastError();
    return found == cudaDriverEntryPointSuccess ? function : nullptr;
  };
  const auto get_device = reinterpret_cast<decltype(&cuDeviceGet)>(entry("cuDeviceGet"));
  const auto get_attribute =
      reinterpret_cast<decltype(&cuDeviceGetAttribute)>(entry("cuDeviceGetAttribute"));
  CUdevice handle{};
  int value = 0;
  return get_device != nullptr && get_attribute != nullptr &&
         get_device(&handle, device) == CUDA_SUCCESS &&
         get_attribute(&value, attribute, handle) == CUDA_SUCCESS && value != 0;
}

GpuFacts examine_gpu(int device, const std::vector<int>& usable) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  GpuFacts gpu;
  gpu.index = device;
  gpu.name = properties.name;
  gpu.arch = fmt::format("{}.{}", properties.major, properties.minor);
  gpu.sms = properties.multiProcessorCount;
  gpu.memory_bytes = properties.totalGlobalMem;
  gpu.supported = std::find(usable.begin(), usable.end(), device) != usable.end();
  if (gpu.supported)
    gpu.sm_budget = cuda::grid_for(ForwardOptions{}, environment_reserved_sms(),
                                   10 * properties.major + properties.minor, gpu.sms, 1);
  gpu.posix_descriptors =
      driver_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
  gpu.fabric = driver_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device);
  gpu.multicast = driver_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
  if (gpu.supported) {
    const DeviceGuard guard(device);
    std::size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    gpu.free_bytes = free;
  }
  return gpu;
}

PeerFacts examine_pair(int from, int to) {
  PeerFacts pair;
  pair.from = from;
  pair.to = to;
  int value = 0;
  cuda::check(cudaDeviceCanAccessPeer(&value, from, to), "cudaDeviceCanAccessPeer");
  pair.access = value != 0;
  if (!pair.access) return pair;
  cuda::check(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrNativeAtomicSupported, from, to),
              "cudaDeviceGetP2PAttribute");
  pair.native_atomics = value != 0;
  return pair;
}

/// What one GPU needs for the measurements.
struct Probe {
  explicit Probe(int index)
      : device(index), data(index, kPulledBytes), flag(index, sizeof(std::uint32_t)) {
    cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, index),
                "counting SMs");
  }
  [[nodiscard]] std::uint32_t* flag_word() const {
    return reinterpret_cast<std::uint32_t*>(flag.data());
  }
  int device;
  int sms = 0;
  DeviceBuffer data, flag;
  cuda::PrivateStream stream;
  cuda::Event begin, end;
};

void enable_access(int from, int to) {
  const DeviceGuard guard(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  cuda::check(error, "cudaDeviceEnablePeerAccess");
}

double bandwidth_gbs(Probe& own, const Probe& peer) {
  const DeviceGuard guard(own.device);
  double least_us = 1e30;
  for (int i = 0; i < kPulls; ++i) {
    own.begin.record(own.stream.get());
    cuda::check(
        launch_pull(own.data.data(), peer.data.data(), kPulledBytes, own.sms, own.stream.get()),
        "reading a peer's memory");
    own.end.record(own.stream.get());
    cuda::check(cudaStreamSynchronize(own.stream.get()), "reading a peer's memory");
    least_us = std::min(least_us, own.end.us_since(own.begin));
  }
  return static_cast<double>(kPulledBytes) / least_us * 1e-3;
}

/// One way, microseconds; none if a flag did not come in time.
std::optional<double> latency_us(const Probe& a, const Probe& b) {
  const cuda::MappedBuffer results(2 * sizeof(PingResult));
  auto* const device = reinterpret_cast<PingResult*>(results.device());
  for (const Probe* probe : {&a, &b}) {
    const DeviceGuard guard(probe->device);
    cuda::check(cudaMemsetAsync(probe->flag.data(), 0, sizeof(std::uint32_t), probe->stream.get()),
                "clearing a flag");
    cuda::check(cudaStreamSynchronize(probe->stream.get()), "clearing a flag");
  }
  const auto start = [&](const Probe& own, const Probe& peer, bool leader) {
    const DeviceGuard guard(own.device);
    cuda::check(launch_ping({.own_flag = own.flag_word(),
                             .peer_flag = peer.flag_word(),
                             .result = device + (leader ? 0 : 1),
                             .rounds = kRounds,
                             .leader = leader,
                             .deadline_ns = kPingDeadlineNs},
                            own.stream.get()),
                "exchanging flags");
  };
  start(b, a, false);
  start(a, b, true);
  for (const Probe* probe : {&a, &b}) {
    const DeviceGuard guard(probe->device);
    cuda::check(cudaStreamSynchronize(probe->stream.get()), "exchanging flags");
  }
  const auto* const leader = reinterpret_cast<const PingResult*>(results.host());
  if (leader->rounds < kRounds) return std::nullopt;
  return static_cast<double>(leader->ns) / (2.0 * kRounds) * 1e-3;
}

void measure_pairs(std::vector<PeerFacts>& pairs, const std::vector<int>& usable) {
  std::vector<std::unique_ptr<Probe>> probes;
  const auto probe_of = [&](int device) -> Probe* {
    for (const auto& probe : probes)
      if (probe->device == device) return probe.get();
    return nullptr;
  };
  for (const int device : usable) {
    if (probe_of(device) != nullptr) continue;
    const DeviceGuard guard(device);
    probes.push_back(std::make_unique<Probe>(device));
  }
  for (PeerFacts& pair : pairs) {
    Probe* const from = probe_of(pair.from);
    const Probe* const to = probe_of(pair.to);
    if (from == nullptr || to == nullptr || !pair.access || !pair.native_atomics) continue;
    try {
      enable_access(pair.from, pair.to);
      enable_access(pair.to, pair.from);
      pair.bandwidth_gbs = bandwidth_gbs(*from, *to);
      pair.latency_us = latency_us(*from, *to);
      if (!pair.latency_us)
        pair.problem = fmt::format("a flag did not arrive within {} s", kPingDeadlineNs / 1e9);
    } catch (const Error& error) {
      pair.problem = error.what();
    }
  }
}

}  // namespace

void examine_gpus(MachineFacts& facts, bool measure) {
  facts.cuda_build = true;
  facts.runtime = CUDART_VERSION;
  const Devices found = find_devices();
  facts.gpu_reason = found.reason;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  for (int device = 0; device < count; ++device)
    facts.gpus.push_back(examine_gpu(device, found.usable));
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to)
      if (from != to) facts.peers.push_back(examine_pair(from, to));
  }
  if (measure && !facts.peers.empty()) measure_pairs(facts.peers, found.usable);
}

}  // namespace megamoe::cli
