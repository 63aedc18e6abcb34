// add .. div, fma, eq .. ge, select, bit_*: the names that generated code uses, and operators for legible kernels.
#pragma once

#include "convert.h"

namespace SEALIFT_NS {
namespace {

#define SEALIFT_WRAPPING_(name, op) \
  template <class T> SEALIFT_INLINE Vec<T> name(Vec<T> a, Vec<T> b) { \
    Vec<T> r; \
    if constexpr (Element<T>::is_float) { SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] op b.part[i]); } \
    else { SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)((UnsignedPart<T>)a.part[i] op (UnsignedPart<T>)b.part[i])); } \
    return r; \
  }
SEALIFT_WRAPPING_(add, +)
SEALIFT_WRAPPING_(sub, -)
SEALIFT_WRAPPING_(mul, *)
#undef SEALIFT_WRAPPING_

// True division, of floats.
template <class T> SEALIFT_INLINE Vec<T> div(Vec<T> a, Vec<T> b) {
  static_assert(Element<T>::is_float, "integers have trunc_div and floor_div");
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = a.part[i] / b.part[i]);
  return r;
}

// Bits of integers and of masks; of floats too, through their integers.
#define SEALIFT_BITS_(name, op) \
  template <class T> SEALIFT_INLINE Vec<T> name(Vec<T> a, Vec<T> b) { \
    Vec<T> r; \
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)((SignedPart<T>)a.part[i] op (SignedPart<T>)b.part[i])); \
    return r; \
  } \
  SEALIFT_INLINE Mask name(Mask a, Mask b) { \
    Mask r; \
    SEALIFT_EACH_PART(Mask::kParts, r.part[i] = a.part[i] op b.part[i]); \
    return r; \
  }
SEALIFT_BITS_(bit_and, &)
SEALIFT_BITS_(bit_or, |)
SEALIFT_BITS_(bit_xor, ^)
#undef SEALIFT_BITS_
template <class T> SEALIFT_INLINE Vec<T> bit_not(Vec<T> a) {
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)~(SignedPart<T>)a.part[i]);
  return r;
}
SEALIFT_INLINE Mask bit_not(Mask a) { return int_to_mask(bit_not(mask_to_int(a))); }
SEALIFT_INLINE Mask logical_and(Mask a, Mask b) { return bit_and(a, b); }
SEALIFT_INLINE Mask logical_or(Mask a, Mask b) { return bit_or(a, b); }
SEALIFT_INLINE Mask logical_xor(Mask a, Mask b) { return bit_xor(a, b); }
SEALIFT_INLINE Mask logical_not(Mask a) { return bit_not(a); }

#define SEALIFT_COMPARE_(name, op) \
  template <class T> SEALIFT_INLINE Mask name(Vec<T> a, Vec<T> b) { \
    SignedVec<T> r; \
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (SignedPart<T>)(a.part[i] op b.part[i])); \
    return narrow_mask(r); \
  }
SEALIFT_COMPARE_(eq, ==)
SEALIFT_COMPARE_(ne, !=)
SEALIFT_COMPARE_(lt, <)
SEALIFT_COMPARE_(le, <=)
SEALIFT_COMPARE_(gt, >)
SEALIFT_COMPARE_(ge, >=)
#undef SEALIFT_COMPARE_
SEALIFT_INLINE Mask eq(Mask a, Mask b) { return bit_not(bit_xor(a, b)); }
SEALIFT_INLINE Mask ne(Mask a, Mask b) { return bit_xor(a, b); }
SEALIFT_INLINE Mask lt(Mask a, Mask b) { return bit_and(bit_not(a), b); }
SEALIFT_INLINE Mask le(Mask a, Mask b) { return bit_or(bit_not(a), b); }
SEALIFT_INLINE Mask gt(Mask a, Mask b) { return bit_and(a, bit_not(b)); }
SEALIFT_INLINE Mask ge(Mask a, Mask b) { return bit_or(a, bit_not(b)); }

template <class T> SEALIFT_INLINE Vec<T> operator+(Vec<T> a, Vec<T> b) { return add(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator-(Vec<T> a, Vec<T> b) { return sub(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator*(Vec<T> a, Vec<T> b) { return mul(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator/(Vec<T> a, Vec<T> b) { return div(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator&(Vec<T> a, Vec<T> b) { return bit_and(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator|(Vec<T> a, Vec<T> b) { return bit_or(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator^(Vec<T> a, Vec<T> b) { return bit_xor(a, b); }
template <class T> SEALIFT_INLINE Vec<T> operator~(Vec<T> a) { return bit_not(a); }
template <class T> SEALIFT_INLINE Mask operator==(Vec<T> a, Vec<T> b) { return eq(a, b); }
template <class T> SEALIFT_INLINE Mask operator!=(Vec<T> a, Vec<T> b) { return ne(a, b); }
template <class T> SEALIFT_INLINE Mask operator<(Vec<T> a, Vec<T> b) { return lt(a, b); }
template <class T> SEALIFT_INLINE Mask operator<=(Vec<T> a, Vec<T> b) { return le(a, b); }
template <class T> SEALIFT_INLINE Mask operator>(Vec<T> a, Vec<T> b) { return gt(a, b); }
template <class T> SEALIFT_INLINE Mask operator>=(Vec<T> a, Vec<T> b) { return ge(a, b); }

// Lanes of a where the mask is true, of b elsewhere.
template <class T> SEALIFT_INLINE Vec<T> select(Mask m, Vec<T> a, Vec<T> b) {
  SignedVec<T> w = widen_mask<T>(m);
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = w.part[i] ? a.part[i] : b.part[i]);
  return r;
}
template <> SEALIFT_INLINE Mask select<bool>(Mask m, Mask a, Mask b) { return (m & a) | (~m & b); }

// The lanes with index < n. first_lanes(kLanes) and more is all of them.
SEALIFT_INLINE Mask first_lanes(int64_t n) { return iota<int32_t>(0) < splat<int32_t>(int32_t(n < kLanes ? n : kLanes)); }

// Constant shifts of 32-bit lanes, 0 < n < 32.
SEALIFT_INLINE Vec<int32_t> shift_left(Vec<int32_t> v, int n) {
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Vec<int32_t>::kParts, r.part[i] = (I32)((UnsignedPart<int32_t>)v.part[i] << n));
  return r;
}
SEALIFT_INLINE Vec<int32_t> shift_right(Vec<int32_t> v, int n) {   // copies the sign in
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Vec<int32_t>::kParts, r.part[i] = v.part[i] >> n);
  return r;
}
SEALIFT_INLINE Vec<int32_t> shift_right_logical(Vec<int32_t> v, int n) {   // zeros in
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Vec<int32_t>::kParts, r.part[i] = (I32)((UnsignedPart<int32_t>)v.part[i] >> n));
  return r;
}

template <class T> SEALIFT_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {   // a*b + c, rounded once where the ISA has FMA
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = fma_part(a.part[i], b.part[i], c.part[i]));
  return r;
}

}  // namespace
}  // namespace SEALIFT_NS
