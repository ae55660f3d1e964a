#pragma once

#include <type_traits>

/// Marks functions that both the host and the device call.
#ifdef __CUDACC__
#define MEGAMOE_HD __host__ __device__
#else
#define MEGAMOE_HD
#endif

namespace megamoe {

/// std::bit_cast for host and device: the standard one is a host function to nvcc.
template <class To, class From>
MEGAMOE_HD constexpr To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> &&
                std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}

}  // namespace megamoe
