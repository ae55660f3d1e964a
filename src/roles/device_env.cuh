#pragma once

#include <cuda/atomic>
#include <nv/target>

#include "protocol/fault.hpp"
#include "ptx/copy.cuh"
#include "ptx/device.cuh"

// The protocol's Environment for one CUDA thread.

namespace megamoe {

class DeviceEnv {
 public:
  using Order = protocol::Order;
  using Scope = protocol::Scope;
  using u64 = protocol::u64;

  /// A poll of another SM's or another GPU's word takes about a microsecond.
  static constexpr protocol::u32 kPollsPerCheck = 64;

  template <Order O, Scope S, class T>
  MEGAMOE_HD T load(const T* word) {
    return ref<S>(const_cast<T*>(word)).load(memory_order(O));
  }
  template <Order O, Scope S, class T>
  MEGAMOE_HD void store(T* word, T value) {
    ref<S>(word).store(value, memory_order(O));
  }
  template <Order O, Scope S, class T>
  MEGAMOE_HD T fetch_add(T* word, T value) {
    return ref<S>(word).fetch_add(value, memory_order(O));
  }
  template <Order O, Scope S, class T>
  MEGAMOE_HD bool compare_exchange(T* word, T expected, T desired) {
    return ref<S>(word).compare_exchange_strong(expected, desired, memory_order(O),
                                                cuda::std::memory_order_relaxed);
  }
  MEGAMOE_HD u64 now() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return ptx::globaltimer();), (return 0;))
  }
  MEGAMOE_HD void pause() {}
  /// The instruction orders both directions.
  MEGAMOE_HD void fence_proxy_generic_to_async() {
    NV_IF_TARGET(NV_IS_DEVICE, (ptx::fence_proxy_async();))
  }
  MEGAMOE_HD void fence_proxy_async_to_generic() {
    NV_IF_TARGET(NV_IS_DEVICE, (ptx::fence_proxy_async();))
  }

 private:
  template <Scope S, class T>
  MEGAMOE_HD static auto ref(T* word) {
    if constexpr (S == Scope::cta) {
      return cuda::atomic_ref<T, cuda::thread_scope_block>(*word);
    } else if constexpr (S == Scope::gpu) {
      return cuda::atomic_ref<T, cuda::thread_scope_device>(*word);
    } else {
      return cuda::atomic_ref<T, cuda::thread_scope_system>(*word);
    }
  }
  /// launch_release: the start of the kernel has released its payload already.
  MEGAMOE_HD static constexpr cuda::std::memory_order memory_order(Order order) {
    switch (order) {
      case Order::acquire:
        return cuda::std::memory_order_acquire;
      case Order::release:
        return cuda::std::memory_order_release;
      case Order::acq_rel:
        return cuda::std::memory_order_acq_rel;
      default:
        return cuda::std::memory_order_relaxed;
    }
  }
};

using DeviceCall = protocol::Call<DeviceEnv>;

}  // namespace megamoe
