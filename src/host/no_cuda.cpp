// What a build without CUDA answers to those who ask for a GPU.
#include <fmt/format.h>

#include "host/backend.hpp"
#include "host/devices.hpp"

namespace megamoe {
namespace {

constexpr const char* kReason = "this build has no CUDA kernels";

}  // namespace

Devices find_devices() { return {{}, kReason}; }

int device_for(const char* who, int /*device*/) {
  throw Error(ErrorCode::unsupported, fmt::format("{}: {}", who, kReason));
}

void check_reach(const AllGather& /*gather*/, int /*device*/) {
  throw Error(ErrorCode::unsupported, std::string("memory on GPUs: ") + kReason);
}

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_processes(const JoinOptions& /*options*/,
                                                                 int /*device*/) {
  throw Error(ErrorCode::unsupported, std::string("cuda_processes: ") + kReason);
}

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_virtual(int /*ranks*/, int /*device*/) {
  throw Error(ErrorCode::unsupported, std::string("cuda_virtual: ") + kReason);
}

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_peers(std::span<const int> /*devices*/) {
  throw Error(ErrorCode::unsupported, std::string("cuda_peers: ") + kReason);
}

std::unique_ptr<Backend> make_cuda_backend(const Problem& /*problem*/,
                                           const SymmetricMemory& /*memory*/) {
  throw Error(ErrorCode::unsupported, std::string("memory on GPUs: ") + kReason);
}

}  // namespace megamoe
