#pragma once

#include "numerics/activation.hpp"
#include "numerics/quantize.hpp"
#include "ptx/warp.cuh"

// The gated activation between the two expert matrices, in FP32, one channel at a time: `activate`
// of numerics/activation.hpp with the device's own exponential and reciprocal.

namespace megamoe {

/// 1 / (1 + e^-x), NaN for NaN. Precise: within 2 ulp; below x = -87 it stays at e^-87, far under
/// what a code of the result can show. Fast: the error of the argument's product with log2(e) stays
/// in, about abs(x) * 2^-24 relative.
template <bool kFast>
MEGAMOE_DEVICE float sigmoid(float x) {
  constexpr float kLog2e = 1.44269504F, kLog2eRest = 1.92596299e-8F, kLn2 = 0.693147181F;
  if constexpr (kFast) {
    return ptx::rcp_approx(1.0F + ptx::ex2_approx(x * -kLog2e));
  } else {
    const float y = ptx::min_nan(-x, 87.0F);
    const float whole = y * kLog2e;
    const float rest = fmaf(y, kLog2eRest, fmaf(y, kLog2e, -whole));
    const float power = ptx::ex2_approx(whole);
    const float d = 1.0F + fmaf(power, rest * kLn2, power);
    const float r = ptx::rcp_approx(d);
    return fmaf(fmaf(-d, r, 1.0F), r, r);
  }
}

/// silu(min(g, clamp)) * clamp(u, -clamp, clamp); clamp may be infinite. A NaN stays a NaN.
template <bool kFast>
struct Swiglu {
  float clamp;

  MEGAMOE_DEVICE float operator()(float gate, float up) const {
    gate = ptx::min_nan(gate, clamp);
    up = ptx::max_nan(ptx::min_nan(up, clamp), -clamp);
    return gate * sigmoid<kFast>(gate) * up;
  }
};

/// The scale of a group of 128 channels with the largest magnitude `amax`, NaN ignored. A product
/// beyond FP32 counts as the largest FP32 value, as in `activate`: its code saturates.
MEGAMOE_DEVICE GroupScale activated_group_scale(float amax) {
  return group_scale(fminf(amax, detail::kFloatMax));
}

}  // namespace megamoe
