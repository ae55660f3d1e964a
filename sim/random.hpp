#pragma once

#include "sim/view.hpp"

namespace megamoe::sim {

constexpr u64 mix(u64 x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 30U) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27U) * 0x94D049BB133111EBU;
  return x ^ x >> 31U;
}

/// splitmix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(u64 seed) : state_(mix(seed)) {}
  u64 bits() { return mix(state_ += 0x9E3779B97F4A7C15U); }
  /// Uniform in [0, n), n > 0.
  u32 below(u32 n) { return static_cast<u32>((bits() >> 32U) * n >> 32U); }
  bool percent(u32 p) { return below(100) < p; }

 private:
  u64 state_;
};

}  // namespace megamoe::sim
