#pragma once

// Names what the host does in profilers' timelines, where the toolkit has NVTX's headers: nothing
// is linked, and without a profiler a range costs a few nanoseconds.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MEGAMOE_HAS_NVTX 1
#else
#define MEGAMOE_HAS_NVTX 0
#endif

namespace megamoe::cuda {

class ProfileRange {
 public:
#if MEGAMOE_HAS_NVTX
  explicit ProfileRange(const char* name) { nvtxRangePushA(name); }
  ~ProfileRange() { nvtxRangePop(); }
#else
  explicit ProfileRange(const char* /*name*/) {}
  ~ProfileRange() {}  // not trivial, so that an unused range is no warning
#endif
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace megamoe::cuda
