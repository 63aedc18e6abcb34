// Arithmetic as ATen defines it: abs, minimum, maximum, sqrt, rounding, the three divisions and their remainders, shifts.
#pragma once

#include "memory.h"

namespace SEALIFT_NS {
namespace {

template <class T> SEALIFT_INLINE Vec<T> sign_mask() {   // the sign bit of each lane
  return bitcast<T>(splat<typename Element<T>::Unsigned>(typename Element<T>::Unsigned(1) << (8 * sizeof(T) - 1)));
}
template <class T> SEALIFT_INLINE Vec<T> neg(Vec<T> a) {
  if constexpr (Element<T>::is_float) return a ^ sign_mask<T>();
  else return Vec<T>{} - a;
}
template <class T> SEALIFT_INLINE Vec<T> operator-(Vec<T> a) { return neg(a); }
template <class T> SEALIFT_INLINE Vec<T> abs(Vec<T> a) {   // abs(INT_MIN) is INT_MIN
  if constexpr (Element<T>::is_float) return a & ~sign_mask<T>();
  else if constexpr (Element<T>::is_signed) return select(a < Vec<T>{}, neg(a), a);
  else return a;
}
template <class T> SEALIFT_INLINE Vec<T> copysign(Vec<T> magnitude, Vec<T> sign) {
  return (magnitude & ~sign_mask<T>()) | (sign & sign_mask<T>());
}
template <class T> SEALIFT_INLINE Mask isnan(Vec<T> a) { return ne(a, a); }

// Of floats: NaN if either is NaN, as torch.minimum. Of zeros of both signs: b's.
template <class T> SEALIFT_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
  if constexpr (Element<T>::is_float) {
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] != a.part[i] ? a.part[i] : min_part(a.part[i], b.part[i]));
    return r;
  } else {
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] < b.part[i] ? a.part[i] : b.part[i]);
    return r;
  }
}
template <class T> SEALIFT_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
  if constexpr (Element<T>::is_float) {
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] != a.part[i] ? a.part[i] : max_part(a.part[i], b.part[i]));
    return r;
  } else {
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i]);
    return r;
  }
}

template <class T> SEALIFT_INLINE Vec<T> sqrt(Vec<T> a) {
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = sqrt_part(a.part[i]));
  return r;
}
#define SEALIFT_ROUND_(name, mode) \
  template <class T> SEALIFT_INLINE Vec<T> name(Vec<T> a) { \
    Vec<T> r; \
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = round_part<mode>(a.part[i])); \
    return r; \
  }
SEALIFT_ROUND_(floor, Rounding::kDown)
SEALIFT_ROUND_(ceil, Rounding::kUp)
SEALIFT_ROUND_(trunc, Rounding::kTowardZero)
SEALIFT_ROUND_(round, Rounding::kNearestEven)
#undef SEALIFT_ROUND_

SEALIFT_INLINE float fmod_lane(float a, float b) { return __builtin_fmodf(a, b); }
SEALIFT_INLINE double fmod_lane(double a, double b) { return __builtin_fmod(a, b); }
// Lanes with b == 0 give 0 and INT64_MIN / -1 wraps: the machine instruction would trap.
SEALIFT_INLINE int64_t trunc_div_lane(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? int64_t(0 - uint64_t(a)) : a / b; }

// Rounded toward zero. Narrow integers go through floats with enough bits that the truncated quotient is exact: a
// quotient that is not an integer differs from one by at least 1/|a| of itself, and 1/|a| is far above the rounding error.
template <class T> SEALIFT_INLINE Vec<T> trunc_div(Vec<T> a, Vec<T> b) {
  if constexpr (Element<T>::is_float) {
    return trunc(div(a, b));
  } else if constexpr (sizeof(T) <= 2) {
    return cast<T>(truncate32(cast<float>(a) / cast<float>(b)));
  } else if constexpr (sizeof(T) == 4) {
    return truncate32(cast<double>(a) / cast<double>(b));
  } else {
    int64_t x[kLanes], y[kLanes];
    store(x, a);
    store(y, b);
    for (int i = 0; i < kLanes; ++i) x[i] = trunc_div_lane(x[i], y[i]);
    return load(x);
  }
}

// C's fmod and %: the sign of a.
template <class T> SEALIFT_INLINE Vec<T> fmod(Vec<T> a, Vec<T> b) {
  if constexpr (Element<T>::is_float) {
    T x[kLanes], y[kLanes];
    store(x, a);
    store(y, b);
    for (int i = 0; i < kLanes; ++i) x[i] = fmod_lane(x[i], y[i]);
    return load(x);
  } else {
    return a - trunc_div(a, b) * b;
  }
}

// Whether a remainder r of C has another sign than b, so that Python's differs from it.
template <class T> SEALIFT_INLINE Mask wrong_sign(Vec<T> r, Vec<T> b) {
  if constexpr (!Element<T>::is_signed) return Mask{};
  else return ne(r, Vec<T>{}) & (lt(b, Vec<T>{}) ^ lt(r, Vec<T>{}));
}

// Python's %: the sign of b. Source of the float algorithm: ATen native/cpu/BinaryOpsKernel.cpp, remainder_kernel.
template <class T> SEALIFT_INLINE Vec<T> remainder(Vec<T> a, Vec<T> b) {
  Vec<T> r = fmod(a, b);
  return select(wrong_sign(r, b), r + b, r);
}

// Python's //. Source of the float algorithm: c10/util/generic_math.h, div_floor_floating (a/0 is +-inf or NaN there).
template <class T> SEALIFT_INLINE Vec<T> floor_div(Vec<T> a, Vec<T> b) {
  if constexpr (Element<T>::is_float) {
    const Vec<T> zero = {}, one = splat<T>(1);
    Vec<T> r = fmod(a, b);
    Vec<T> q = (a - r) / b;
    q = select(wrong_sign(r, b), q - one, q);
    Vec<T> f = floor(q);
    f = select(gt(q - f, splat<T>(T(0.5))), f + one, f);
    Vec<T> exact = a / b;
    f = select(ne(q, zero), f, copysign(zero, exact));
    return select(eq(b, zero), exact, f);
  } else {
    Vec<T> q = trunc_div(a, b);
    return select(wrong_sign(a - q * b, b), q - splat<T>(1), q);
  }
}

// a << b and a >> b as ATen has them: shifting by a negative or too large number gives 0, or for >> the sign.
template <class T> SEALIFT_INLINE Vec<T> shl(Vec<T> a, Vec<T> b) {
  if constexpr (sizeof(T) < 4) {
    return cast<T>(shl(cast<int32_t>(a), cast<int32_t>(b)));   // bits beyond T are cut off by the cast
  } else {
    typedef typename Element<T>::Unsigned U;
    constexpr U bits = 8 * sizeof(T);
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts,
      auto n = (UnsignedPart<T>)b.part[i];
      auto shifted = (UnsignedPart<T>)a.part[i] << (n & (bits - 1));
      r.part[i] = (PartOf<T>)(n < bits ? shifted : UnsignedPart<T>{}));
    return r;
  }
}
template <class T> SEALIFT_INLINE Vec<T> shr(Vec<T> a, Vec<T> b) {
  if constexpr (sizeof(T) < 4) {
    return cast<T>(shr(cast<int32_t>(a), cast<int32_t>(b)));
  } else {
    typedef typename Element<T>::Unsigned U;
    constexpr U last = 8 * sizeof(T) - 1;
    Vec<T> r;
    SEALIFT_EACH_PART(Vec<T>::kParts,
      auto n = (UnsignedPart<T>)b.part[i];
      n = n < last ? n : UnsignedPart<T>{} + last;
      r.part[i] = a.part[i] >> (SignedPart<T>)n);
    return r;
  }
}

}  // namespace
}  // namespace SEALIFT_NS
