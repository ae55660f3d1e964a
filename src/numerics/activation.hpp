#pragma once

#include <cmath>
#include <limits>

#include "megamoe/problem.hpp"
#include "numerics/hd.hpp"

namespace megamoe {

/// The elementary functions that `activate` uses, for T = float or double. The device has another
/// set with the same members for ForwardOptions::fast_math.
template <class T>
struct StandardMath {
  using Real = T;
  static MEGAMOE_HD T exp(T x) { return std::exp(x); }
  static MEGAMOE_HD T tanh(T x) { return std::tanh(x); }
  static MEGAMOE_HD T divide(T a, T b) { return a / b; }
};

namespace detail {

inline constexpr float kFloatMax = std::numeric_limits<float>::max();

/// min(x, high) that keeps NaN.
template <class T>
MEGAMOE_HD constexpr T at_most(T x, T high) {
  return x > high ? high : x;
}

/// clamp(x, -bound, bound) that keeps NaN.
template <class T>
MEGAMOE_HD constexpr T clamp_symmetric(T x, T bound) {
  return x > bound ? bound : (x < -bound ? -bound : x);
}

/// x * sigmoid(scaled_x). exp may overflow to Inf: the quotient is then a zero with x's sign.
template <class Math>
MEGAMOE_HD typename Math::Real gate(typename Math::Real x, typename Math::Real scaled_x) {
  using T = typename Math::Real;
  return Math::divide(x, T(1) + Math::exp(-scaled_x));
}

/// bound * tanh(x / bound), whose limit for an infinite bound is x.
template <class Math>
MEGAMOE_HD typename Math::Real soft_clip(typename Math::Real x, typename Math::Real bound) {
  using T = typename Math::Real;
  if (bound == T(Activation::kNone)) return x;
  return bound * Math::tanh(Math::divide(x, bound));
}

}  // namespace detail

/// h for one channel of one row: gate g, up u; see Activation for the formulas. Finite g and u give
/// a finite h: a product beyond FP32 becomes the largest FP32 value (also when T is double, whose
/// result is to be rounded to FP32). NaN in g or u gives NaN.
template <class Math = StandardMath<float>>
MEGAMOE_HD typename Math::Real activate(const Activation& a, typename Math::Real g,
                                        typename Math::Real u) {
  using T = typename Math::Real;
  T h{};
  switch (a.kind) {
    case ActivationKind::swiglu: {
      const T clamped = detail::at_most(g, T(a.clamp));
      h = detail::gate<Math>(clamped, clamped) * detail::clamp_symmetric(u, T(a.clamp));
      break;
    }
    case ActivationKind::swiglu_oai: {
      const T clamped = detail::at_most(g, T(a.clamp));
      h = detail::gate<Math>(clamped, T(a.alpha) * clamped) *
          (detail::clamp_symmetric(u, T(a.clamp)) + T(a.up_bias));
      break;
    }
    case ActivationKind::situ: {
      const T clipped = detail::soft_clip<Math>(g, T(a.beta));
      h = detail::gate<Math>(clipped, g) * detail::soft_clip<Math>(u, T(a.linear_beta));
      break;
    }
  }
  return detail::clamp_symmetric(h, T(detail::kFloatMax));
}

}  // namespace megamoe
