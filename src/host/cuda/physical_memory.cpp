#include "host/cuda/physical_memory.hpp"

#include <cstring>

#include "host/cuda/runtime.hpp"

namespace megamoe::cuda {
namespace {

CUmemAllocationProp properties(int device, Carrier carrier) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  p.requestedHandleTypes = carrier == Carrier::file ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                    : CU_MEM_HANDLE_TYPE_FABRIC;
  return p;
}

}  // namespace

std::size_t PhysicalMemory::granularity(int device, Carrier carrier) {
  const CUmemAllocationProp p = properties(device, carrier);
  std::size_t bytes = 0;
  check_driver(driver().granularity(&bytes, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity");
  return bytes;
}

PhysicalMemory::PhysicalMemory(int device, std::size_t bytes, Carrier carrier) {
  const CUmemAllocationProp p = properties(device, carrier);
  check_driver(driver().create(&handle_, bytes, &p, 0),
               fmt::format("cannot allocate {} bytes on device {}", bytes, device).c_str());
}

PhysicalMemory PhysicalMemory::import_file(const join::File& file) {
  CUmemGenericAllocationHandle handle = 0;
  auto* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(file.number()));
  check_driver(driver().import_handle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "importing a file descriptor");
  return PhysicalMemory(handle);
}

PhysicalMemory PhysicalMemory::import_fabric(const std::string& text) {
  CUmemFabricHandle fabric{};
  if (text.size() != sizeof(fabric)) {
    throw Error(ErrorCode::system,
                fmt::format("a fabric handle of {} bytes, not {}", text.size(), sizeof(fabric)));
  }
  std::memcpy(&fabric, text.data(), sizeof(fabric));
  CUmemGenericAllocationHandle handle = 0;
  check_driver(driver().import_handle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC),
               "importing a fabric handle");
  return PhysicalMemory(handle);
}

PhysicalMemory::~PhysicalMemory() {
  if (handle_ != 0) driver().release(handle_);
}

join::File PhysicalMemory::export_file() const {
  int number = -1;
  check_driver(
      driver().export_handle(&number, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "exporting a file descriptor");
  return join::File(number);
}

std::string PhysicalMemory::export_fabric() const {
  CUmemFabricHandle fabric{};
  check_driver(driver().export_handle(&fabric, handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0),
               "exporting a fabric handle");
  return {reinterpret_cast<const char*>(&fabric), sizeof(fabric)};
}

Mapping::Mapping(const PhysicalMemory& memory, std::size_t bytes, int device) : bytes_(bytes) {
  check_driver(driver().reserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve");
  try {
    check_driver(driver().map(address_, bytes, 0, memory.handle(), 0), "cuMemMap");
    mapped_ = true;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check_driver(driver().set_access(address_, bytes, &access, 1), "cuMemSetAccess");
  } catch (...) {
    free();
    throw;
  }
}

Mapping::~Mapping() { free(); }

void Mapping::free() {
  if (mapped_) driver().unmap(address_, bytes_);
  if (address_ != 0) driver().free_address(address_, bytes_);
  mapped_ = false;
  address_ = 0;
}

}  // namespace megamoe::cuda
