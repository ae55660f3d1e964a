#pragma once

#include <algorithm>
#include <optional>

namespace megamoe {

/// Compute capability, as 10 x major + minor, from which CTAs run in pairs.
inline constexpr int kPairedArch = 100;
inline constexpr int kPairedReserve = 2;  ///< SMs left free there by default

/// SMs of one launch: all `physical` ones but the reserve, and at most `current` (a budget, or what
/// a green context has). Where CTAs run in pairs (sm_100 and later) 2 are left free unless
/// `reserve` says otherwise, and the count is even and at least 2, however large the reserve. On
/// sm_90 nothing is left free unless asked, and a reserve that leaves too little gives less than 1:
/// for the caller to refuse.
constexpr int launch_sms(int arch, int physical, int current, std::optional<int> reserve = {}) {
  const bool paired = arch >= kPairedArch;
  const int left = physical - reserve.value_or(paired ? kPairedReserve : 0);
  const int sms = std::min(left, current);
  return paired ? std::max(2, sms / 2 * 2) : sms;
}

}  // namespace megamoe
