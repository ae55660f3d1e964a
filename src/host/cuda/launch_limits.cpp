#include "host/cuda/launch_limits.hpp"

#include <algorithm>
#include <string>

#include "config/launch_sms.hpp"
#include "host/cuda/runtime.hpp"
#include "host/layer_state.hpp"

namespace megamoe::cuda {
namespace {

constexpr int kL1TileChannels = 128;
constexpr int kL2TileChannels = 256;

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorCode::unsupported, reason); }

void check_biases(const char* which, const ExpertTensors* w) {
  if (w == nullptr || (w->b1 == nullptr && w->b2 == nullptr)) return;
  refuse(fmt::format("{} weights have {}; the CUDA kernels add no biases, the CPU backend does",
                     which, w->b1 != nullptr ? "b1" : "b2"));
}

}  // namespace

void check_problem(const Problem& p, int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major != 9 || properties.minor != 0) {
    refuse(
        fmt::format("device {} ({}) has compute capability {}.{}; the kernels run on 9.0 "
                    "(Hopper)",
                    device, properties.name, properties.major, properties.minor));
  }
  if (p.precision != Precision::fp8) {
    refuse(
        fmt::format("precision = {} does not run on device {} ({}); fp8 does, and the CPU "
                    "backend runs {}",
                    name(p.precision), device, properties.name, name(p.precision)));
  }
  if (p.activation.kind != ActivationKind::swiglu) {
    refuse(
        fmt::format("activation = {} does not run on device {}; swiglu does, and the CPU "
                    "backend runs {}",
                    name(p.activation.kind), device, name(p.activation.kind)));
  }
}

const FusedInstance& instance_for(const PreparedCall& call) {
  const KernelConfig& c = call.config;
  if (c.num_waves != 1) {
    refuse(fmt::format("num_waves = {}; the CUDA kernels run 1 wave, the CPU backend more",
                       c.num_waves));
  }
  if (c.l1_tile_channels != kL1TileChannels || c.l2_tile_channels != kL2TileChannels) {
    refuse(
        fmt::format("l1_tile_channels = {} and l2_tile_channels = {}; the CUDA kernels have {} "
                    "and {}",
                    c.l1_tile_channels, c.l2_tile_channels, kL1TileChannels, kL2TileChannels));
  }
  const FusedInstance* instance = find_fused_instance(c.block_rows);
  if (instance == nullptr || instance->family != c.family) {
    std::string known;
    for (const FusedInstance& i : fused_instances()) {
      known += fmt::format("{}{} of {} rows", known.empty() ? "" : ", ",
                           i.family == Family::decode ? "decode" : "prefill", i.block_rows);
    }
    refuse(fmt::format("no CUDA kernel for {} blocks of {} rows; there are: {}",
                       c.family == Family::decode ? "decode" : "prefill", c.block_rows, known));
  }
  check_biases("routed", call.call.weights);
  check_biases("shared", call.layer->problem.shared_experts > 0 ? call.call.shared : nullptr);
  return *instance;
}

int grid_for(const ForwardOptions& options, std::optional<int> default_reserve, int arch,
             int physical, int launch_ranks) {
  const std::optional<int> reserve = options.reserved_sms ? options.reserved_sms : default_reserve;
  const int grid =
      launch_sms(arch, physical, options.num_sms > 0 ? options.num_sms : physical, reserve);
  if (grid < launch_ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("num_sms = {} and reserved_sms = {} leave {} of {} SMs; a launch of {} "
                            "rank{} needs at least {}",
                            options.num_sms, reserve.value_or(0), std::max(0, grid), physical,
                            launch_ranks, launch_ranks == 1 ? "" : "s", launch_ranks));
  }
  return grid;
}

}  // namespace megamoe::cuda
