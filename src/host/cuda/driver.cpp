#include "host/cuda/driver.hpp"

#include "host/cuda/runtime.hpp"

namespace megamoe::cuda {
namespace {

constexpr unsigned kVersion = 12000;

template <class Function>
void find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw Error(ErrorCode::system,
                fmt::format("the driver has no {}: {}", name, cudaGetErrorString(error)));
  }
  function = reinterpret_cast<Function>(found);
}

Driver load() {
  Driver d{};
  find("cuGetErrorName", d.get_error_name);
  find("cuDeviceGetAttribute", d.device_attribute);
  find("cuMemGetAllocationGranularity", d.granularity);
  find("cuMemCreate", d.create);
  find("cuMemRelease", d.release);
  find("cuMemExportToShareableHandle", d.export_handle);
  find("cuMemImportFromShareableHandle", d.import_handle);
  find("cuMemAddressReserve", d.reserve);
  find("cuMemAddressFree", d.free_address);
  find("cuMemMap", d.map);
  find("cuMemUnmap", d.unmap);
  find("cuMemSetAccess", d.set_access);
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver kDriver = load();
  return kDriver;
}

void check_driver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().get_error_name(result, &name);
  throw Error(ErrorCode::system,
              fmt::format("{}: driver error {} ({})", what, static_cast<int>(result),
                          name == nullptr ? "unknown" : name));
}

}  // namespace megamoe::cuda
