#pragma once

#include <string>

#include "sim/model/state.hpp"

/// Sets of blocks, and where a fault was found.
namespace megamoe::sim::model {

inline u8 small(int value) { return static_cast<u8>(value); }
inline bool bit(u16 set, int i) { return (set >> i & 1) != 0; }
inline void add_bit(u16& set, int i) { set = static_cast<u16>(set | 1 << i); }

inline std::string at_call(int r, int call) {
  return "rank " + std::to_string(r) + ", call " + std::to_string(call) + ": ";
}
inline std::string at_of(int r, int call, int block) {
  return "rank " + std::to_string(r) + ", call " + std::to_string(call) + ", block " +
         std::to_string(block) + ": ";
}

}  // namespace megamoe::sim::model
