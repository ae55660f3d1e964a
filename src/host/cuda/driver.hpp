#pragma once

#include <cuda.h>

// The driver's functions for memory that processes share, found at run time, so that the library
// loads where there is no driver.

namespace megamoe::cuda {

struct Driver {
  decltype(&cuGetErrorName) get_error_name;
  decltype(&cuDeviceGetAttribute) device_attribute;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemExportToShareableHandle) export_handle;
  decltype(&cuMemImportFromShareableHandle) import_handle;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_address;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};

/// Throws Error(system) naming the function that the driver does not have.
const Driver& driver();

/// Throws Error(system) with the driver's name for the error. `what` names the attempt.
void check_driver(CUresult result, const char* what);

}  // namespace megamoe::cuda
