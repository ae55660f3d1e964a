#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "protocol/env.hpp"

namespace megamoe::cpu {

/// The protocol's Environment for one host thread: words are ordinary memory, accessed through
/// std::atomic_ref. With a seed it also yields or sleeps at random before accesses, for tests.
class HostEnv {
 public:
  static constexpr protocol::u32 kPollsPerCheck = 16;

  HostEnv() = default;
  explicit HostEnv(std::uint64_t delay_seed) : delay_state_(delay_seed) {}

  template <protocol::Order O, protocol::Scope, class T>
  T load(const T* word) {
    delay();
    return std::atomic_ref<T>(*const_cast<T*>(word)).load(memory_order(O));
  }
  template <protocol::Order O, protocol::Scope, class T>
  void store(T* word, T value) {
    delay();
    idle_ = 0;
    std::atomic_ref<T>(*word).store(value, memory_order(O));
  }
  template <protocol::Order O, protocol::Scope, class T>
  T fetch_add(T* word, T value) {
    delay();
    idle_ = 0;
    return std::atomic_ref<T>(*word).fetch_add(value, memory_order(O));
  }
  template <protocol::Order O, protocol::Scope, class T>
  bool compare_exchange(T* word, T expected, T desired) {
    delay();
    return std::atomic_ref<T>(*word).compare_exchange_strong(expected, desired, memory_order(O),
                                                             std::memory_order_relaxed);
  }
  [[nodiscard]] protocol::u64 now() const {
    const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<protocol::u64>(std::chrono::nanoseconds(since_boot).count());
  }
  /// Gives the core away: at once while the wait is young, then for longer and longer.
  void pause() {
    if (++idle_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(idle_ - kYields + 1, 200U)));
    }
  }
  void fence_proxy_generic_to_async() {}
  void fence_proxy_async_to_generic() {}

 private:
  static constexpr unsigned kYields = 200;

  static constexpr std::memory_order memory_order(protocol::Order order) {
    switch (order) {
      case protocol::Order::relaxed:
        return std::memory_order_relaxed;
      case protocol::Order::acquire:
        return std::memory_order_acquire;
      case protocol::Order::release:
      case protocol::Order::launch_release:
        return std::memory_order_release;
      case protocol::Order::acq_rel:
        return std::memory_order_acq_rel;
    }
    return std::memory_order_seq_cst;
  }

  void delay() {
    if (delay_state_ == 0) return;
    // xorshift64
    delay_state_ ^= delay_state_ << 13U;
    delay_state_ ^= delay_state_ >> 7U;
    delay_state_ ^= delay_state_ << 17U;
    if (delay_state_ % 256 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_state_ / 256 % 300));
    } else if (delay_state_ % 8 == 0) {
      std::this_thread::yield();
    }
  }

  unsigned idle_ = 0;
  std::uint64_t delay_state_ = 0;  // 0: no delays
};

}  // namespace megamoe::cpu
