#pragma once

#include "protocol/env.hpp"

/// Words that validate themselves: a 64-bit word whose upper half says which call wrote it. Epochs
/// are compared for equality only, so their wrap-around is harmless.
namespace megamoe::protocol {

MEGAMOE_HD constexpr u64 tagged(u32 tag, u32 value) { return static_cast<u64>(tag) << 32U | value; }
MEGAMOE_HD constexpr u32 tag_of(u64 word) { return static_cast<u32>(word >> 32U); }
MEGAMOE_HD constexpr u32 value_of(u64 word) { return static_cast<u32>(word); }

/// Which of two copies of a word or list call `epoch` uses.
MEGAMOE_HD constexpr u32 parity_of(u32 epoch) { return epoch & 1U; }

/// The first call of a group, and the first after a reset.
inline constexpr u32 kFirstEpoch = 1;

/// A contribution: slot `slot` of token `token` of its source rank, slots of shared experts after
/// top_k.
MEGAMOE_HD constexpr u32 contribution_index(u32 token, u32 slot, u32 contributions) {
  return token * contributions + slot;
}

/// Where a row of the pool came from: {source rank, contribution index there}.
MEGAMOE_HD constexpr u64 row_meta(u32 src_rank, u32 index) { return tagged(src_rank, index); }

}  // namespace megamoe::protocol
