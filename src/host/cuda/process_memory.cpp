// One GPU per process: each allocates its region without an address, and maps those of all ranks.
#include <algorithm>

#include "host/cuda/physical_memory.hpp"
#include "host/cuda/runtime.hpp"
#include "host/devices.hpp"
#include "host/handshake.hpp"
#include "host/join/descriptors.hpp"
#include "host/join/joined_memory.hpp"

namespace megamoe {
namespace {

using cuda::Carrier;
using cuda::DeviceGuard;
using cuda::Mapping;
using cuda::PhysicalMemory;

class ProcessMemory final : public join::JoinedMemory {
 public:
  ProcessMemory(const JoinOptions& options, int device)
      : JoinedMemory(options, "a GPU for each process") {
    refuse_together(gather_, trouble_of([&] {
                      device_ = device_for("cuda_processes", device);
                      const DeviceGuard guard(device_);
                      cuda::check(cudaFree(nullptr), "starting the device");
                      cuda::driver();
                    }));
    check_reach(gather_, device_);
    carrier_ = watch().elsewhere().empty() ? Carrier::file : Carrier::fabric;
    // Ranks may disagree where some share a machine.
    for (const std::string& carrier : gather_(carrier_ == Carrier::file ? "file" : "fabric")) {
      if (carrier == "fabric") carrier_ = Carrier::fabric;
    }
    if (carrier_ == Carrier::fabric) refuse_together(gather_, trouble_of([&] { check_fabric(); }));
  }

  [[nodiscard]] std::vector<int> devices() const override { return {device_}; }
  [[nodiscard]] std::string kind() const override {
    return carrier_ == Carrier::file ? "descriptors between processes"
                                     : "fabric handles between processes";
  }

  std::vector<std::byte*> allocate(std::size_t bytes) override {
    const DeviceGuard guard(device_);
    std::optional<PhysicalMemory> own;
    std::vector<Mapping> mapped;
    std::size_t whole = 0;
    refuse_together(gather_, trouble_of([&] {
                      const std::size_t unit = PhysicalMemory::granularity(device_, carrier_);
                      whole = (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
                      own.emplace(device_, whole, carrier_);
                      own_mapping_.emplace_back(*own, whole, device_);
                      zero(own_mapping_.back().data(), whole);
                    }));
    std::vector<PhysicalMemory> peers =
        carrier_ == Carrier::file ? peers_by_file(*own) : peers_by_fabric(*own);
    std::vector<std::byte*> bases(static_cast<std::size_t>(ranks()));
    refuse_together(gather_, trouble_of([&] {
                      std::size_t next = 0;
                      for (int r = 0; r < ranks(); ++r) {
                        if (r != rank()) mapped.emplace_back(peers[next++], whole, device_);
                        bases[static_cast<std::size_t>(r)] =
                            (r == rank() ? own_mapping_ : mapped).back().data();
                      }
                    }));
    for (Mapping& mapping : mapped) peer_mappings_.push_back(std::move(mapping));
    return bases;
  }

 private:
  /// The memory of all other ranks, in order.
  std::vector<PhysicalMemory> peers_by_file(const PhysicalMemory& own) {
    join::File file;
    refuse_together(gather_, trouble_of([&] { file = own.export_file(); }));
    const std::vector<join::File> files =
        join::exchange_files(gather_, rank(), file.number(), options().deadline);
    std::vector<PhysicalMemory> peers;
    refuse_together(gather_, trouble_of([&] {
                      for (std::size_t r = 0; r < files.size(); ++r) {
                        if (static_cast<int>(r) != rank())
                          peers.push_back(PhysicalMemory::import_file(files[r]));
                      }
                    }));
    return peers;
  }

  std::vector<PhysicalMemory> peers_by_fabric(const PhysicalMemory& own) {
    std::string handle;
    refuse_together(gather_, trouble_of([&] { handle = own.export_fabric(); }));
    const std::vector<std::string> handles = gather_(handle);
    std::vector<PhysicalMemory> peers;
    refuse_together(gather_, trouble_of([&] {
                      for (std::size_t r = 0; r < handles.size(); ++r) {
                        if (static_cast<int>(r) != rank())
                          peers.push_back(PhysicalMemory::import_fabric(handles[r]));
                      }
                    }));
    return peers;
  }

  void check_fabric() const {
    int supported = 0;
    cuda::check_driver(cuda::driver().device_attribute(
                           &supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device_),
                       "cuDeviceGetAttribute");
    if (supported == 0) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("ranks {} run on other machines, and device {} here has no fabric "
                              "handles",
                              fmt::join(watch().elsewhere(), ", "), device_));
    }
  }

  static void zero(std::byte* data, std::size_t bytes) {
    const cuda::PrivateStream stream;
    cuda::check(cudaMemsetAsync(data, 0, bytes, stream.get()), "cudaMemset");
    cuda::check(cudaStreamSynchronize(stream.get()), "cudaMemset");
  }

  AllGather gather_ = [this](const std::string& text) { return all_gather(text); };
  int device_ = 0;
  Carrier carrier_ = Carrier::file;
  std::vector<Mapping> own_mapping_;  ///< one for each allocation
  std::vector<Mapping> peer_mappings_;
};

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::cuda_processes(const JoinOptions& options,
                                                                 int device) {
  return std::make_unique<ProcessMemory>(options, device);
}

}  // namespace megamoe
