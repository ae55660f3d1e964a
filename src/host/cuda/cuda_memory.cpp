#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "host/cuda/runtime.hpp"
#include "host/devices.hpp"
#include "host/environment.hpp"
#include "kernels/fused_params.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe {
namespace {

using cuda::DeviceBuffer;
using cuda::DeviceGuard;

static_assert(SymmetricMemory::kMaxVirtualRanks == kMaxLaunchRanks);

/// Ranks of one process in the memory of GPUs that address each other.
class CudaMemory final : public SymmetricMemory {
 public:
  CudaMemory(std::vector<int> devices, bool one_launch)
      : devices_(std::move(devices)), one_launch_(one_launch) {}

  [[nodiscard]] int ranks() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] bool one_launch() const override { return one_launch_; }
  [[nodiscard]] std::vector<int> devices() const override { return devices_; }
  [[nodiscard]] std::vector<int> lost_ranks() const override { return {}; }
  [[nodiscard]] std::vector<int> local_ranks() const override {
    std::vector<int> all(devices_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  [[nodiscard]] std::string kind() const override {
    return one_launch_ ? "one GPU's memory" : "peer access";
  }
  std::vector<std::string> all_gather(const std::string& text) override {
    return std::vector<std::string>(devices_.size(), text);
  }
  std::vector<std::byte*> allocate(std::size_t bytes) override {
    std::vector<std::byte*> bases;
    for (const int device : devices_) {
      regions_.emplace_back(device, bytes);
      bases.push_back(regions_.back().data());
    }
    return bases;
  }

 private:
  std::vector<int> devices_;
  bool one_launch_;
  std::vector<DeviceBuffer> regions_;
};

/// The number of GPUs; throws Error(unsupported) where there is none or no driver.
int device_count(const char* who) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: no usable GPU: {}", who,
                  error == cudaSuccess ? "the driver shows none" : cudaGetErrorString(error)));
}

void check_device(const char* who, int device, int count) {
  if (device < 0 || device >= count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: device = {} is outside 0..{}", who, device, count - 1));
  }
}

/// Calls f(a, b) for every ordered pair of different devices.
template <class F>
void for_pairs(std::span<const int> devices, F f) {
  for (const int a : devices) {
    for (const int b : devices) {
      if (a != b) f(a, b);
    }
  }
}

void check_peers(std::span<const int> devices) {
  std::string reasons;
  for_pairs(devices, [&](int a, int b) {
    const std::string reason = why_unreachable(a, b);
    if (!reason.empty()) reasons += (reasons.empty() ? "" : "; ") + reason;
  });
  if (!reasons.empty()) {
    throw Error(ErrorCode::unsupported,
                "cuda_peers: " + reasons + " (NVLink between all GPUs is needed)");
  }
}

void enable_peers(std::span<const int> devices) {
  for_pairs(devices, [](int a, int b) {
    const DeviceGuard guard(a);
    const cudaError_t error = cudaDeviceEnablePeerAccess(b, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
      return;
    }
    cuda::check(error, fmt::format("peer access from device {} to {}", a, b).c_str());
  });
}

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_virtual(int ranks, int device) {
  if (ranks < 1 || ranks > kMaxVirtualRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cuda_virtual: ranks = {} is outside 1..{}", ranks, kMaxVirtualRanks));
  }
  return std::make_unique<CudaMemory>(
      std::vector<int>(static_cast<std::size_t>(ranks), device_for("cuda_virtual", device)), true);
}

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_peers(std::span<const int> devices) {
  if (devices.empty() || devices.size() > kMaxRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cuda_peers: {} devices; 1..{} are needed", devices.size(), kMaxRanks));
  }
  const int count = device_count("cuda_peers");
  const int ranks_per_gpu = environment_ranks_per_gpu();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    check_device("cuda_peers", devices[i], count);
    const auto upto = devices.first(i + 1);
    const auto times = std::count(upto.begin(), upto.end(), devices[i]);
    if (times > ranks_per_gpu) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("cuda_peers: device {} appears {} times, MEGAMOE_RANKS_PER_GPU is {}; "
                      "cuda_virtual puts several ranks on one",
                      devices[i], times, ranks_per_gpu));
    }
  }
  check_peers(devices);
  enable_peers(devices);
  return std::make_unique<CudaMemory>(std::vector<int>(devices.begin(), devices.end()), false);
}

int device_for(const char* who, int device) {
  const int count = device_count(who);
  if (device == -1) cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  check_device(who, device, count);
  return device;
}

Devices find_devices() {
  Devices found;
  int count = 0, ranks_per_gpu = 1;
  try {
    ranks_per_gpu = environment_ranks_per_gpu();
  } catch (const Error& wrong) {
    found.reason = wrong.what();
    return found;
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    found.reason = error == cudaSuccess ? "the driver shows no GPU" : cudaGetErrorString(error);
    return found;
  }
  for (int device = 0; device < count; ++device) {
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    if (major == 9 && minor == 0) {
      found.usable.push_back(device);
    } else {
      found.reason += fmt::format("{}device {} has compute capability {}.{}, not 9.0",
                                  found.reason.empty() ? "" : "; ", device, major, minor);
    }
  }
  const std::vector<int> once = found.usable;
  for (int more = 1; more < ranks_per_gpu; ++more)
    found.usable.insert(found.usable.end(), once.begin(), once.end());
  return found;
}

}  // namespace megamoe
