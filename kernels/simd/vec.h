// Vectors of kLanes elements: what they are made of.
//
// A map of the operations on them, each file standing on the one before:
//   vec.h          element types, Vec<T>, Mask, the storage types bf16, f16 and b8, and how a vector is cut into registers
//   parts.h        instructions that GCC's vector operators do not reach
//   convert.h      cast<To>(v)
//   operators.h    add .. div, fma, eq .. ge, select, bit_*
//   half.h         bf16 and f16, decoded and encoded
//   memory.h       load, store, gather
//   arithmetic.h   abs .. remainder, rounding, shl, shr
//   reduce.h       any, all, reduce_add ..
//
// Rules that hold throughout:
// - Every vector has kLanes lanes. An element type wider than the register is kept in several registers (`part`).
// - A lane's result depends on that lane's inputs only, so a tail computed with the _partial forms is bitwise equal to
//   the same elements in the body of the loop.
// - Signed integers wrap. Nothing traps: the lanes of a division by zero are unspecified.
// - NaN, infinities and -0.0 behave as in eager PyTorch. Compile with -ffp-contract=off; -fno-math-errno and
//   -fno-trapping-math are harmless, -ffast-math and its parts are not.
#pragma once

#include "isa.h"

namespace SEALIFT_NS {
namespace {

// ---------------------------------------------------------------------------------------------------------------------
// Element types

struct bf16 { uint16_t bits; };   // storage only: loads as Vec<float>
struct f16 { uint16_t bits; };    // storage only: loads as Vec<float>
struct b8 { uint8_t v; };         // storage only: a bool, loads as Mask; any non-zero byte is true, true is stored as 1

// For an element type T: the integers of its width, and what kind of number it is.
template <class T> struct Element;
template <> struct Element<float>    { typedef int32_t Signed; typedef uint32_t Unsigned; static constexpr bool is_float = true,  is_signed = true; };
template <> struct Element<double>   { typedef int64_t Signed; typedef uint64_t Unsigned; static constexpr bool is_float = true,  is_signed = true; };
template <> struct Element<int8_t>   { typedef int8_t  Signed; typedef uint8_t  Unsigned; static constexpr bool is_float = false, is_signed = true; };
template <> struct Element<uint8_t>  { typedef int8_t  Signed; typedef uint8_t  Unsigned; static constexpr bool is_float = false, is_signed = false; };
template <> struct Element<int16_t>  { typedef int16_t Signed; typedef uint16_t Unsigned; static constexpr bool is_float = false, is_signed = true; };
template <> struct Element<uint16_t> { typedef int16_t Signed; typedef uint16_t Unsigned; static constexpr bool is_float = false, is_signed = false; };
template <> struct Element<int32_t>  { typedef int32_t Signed; typedef uint32_t Unsigned; static constexpr bool is_float = false, is_signed = true; };
template <> struct Element<uint32_t> { typedef int32_t Signed; typedef uint32_t Unsigned; static constexpr bool is_float = false, is_signed = false; };
template <> struct Element<int64_t>  { typedef int64_t Signed; typedef uint64_t Unsigned; static constexpr bool is_float = false, is_signed = true; };
template <> struct Element<uint64_t> { typedef int64_t Signed; typedef uint64_t Unsigned; static constexpr bool is_float = false, is_signed = false; };

// The type a storage type is moved as (Raw) and computed in (Compute).
template <class S> struct Storage  { typedef S Raw;        typedef S Compute; };
template <> struct Storage<bf16>   { typedef int16_t Raw;  typedef float Compute; };
template <> struct Storage<f16>    { typedef int16_t Raw;  typedef float Compute; };
template <> struct Storage<b8>     { typedef uint8_t Raw;  typedef bool Compute; };

template <class A, class B> struct SameType       { static constexpr bool value = false; };
template <class A>          struct SameType<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same = SameType<A, B>::value;

// ---------------------------------------------------------------------------------------------------------------------
// Parts

// A GCC vector of `lanes` elements of type T.
template <class T, int lanes> struct Native { typedef T type __attribute__((vector_size(sizeof(T) * lanes))); };

// kParts registers (or one smaller vector, for narrow types). GCC has vectors wider than a register too, but moves them
// through memory.
template <class T> struct Vec {
  static constexpr int kBytes = int(sizeof(T)) * kLanes;
  static constexpr int kPartBytes = kBytes < kRegisterBytes ? kBytes : kRegisterBytes;
  static constexpr int kParts = kBytes / kPartBytes;
  static constexpr int kPartLanes = kLanes / kParts;
  typedef typename Native<T, kPartLanes>::type Part;
  Part part[kParts];
};

// A lane is 0 (false) or -1 (true), in 32 bits whatever type was compared: a Vec<int32_t> of another type.
template <> struct Vec<bool> {
  static constexpr int kParts = Vec<int32_t>::kParts;
  static constexpr int kPartLanes = Vec<int32_t>::kPartLanes;
  typedef Vec<int32_t>::Part Part;
  Part part[kParts];
};
typedef Vec<bool> Mask;

template <class T> using PartOf = typename Vec<T>::Part;
template <class T> using SignedVec = Vec<typename Element<T>::Signed>;
template <class T> using UnsignedPart = PartOf<typename Element<T>::Unsigned>;
template <class T> using SignedPart = PartOf<typename Element<T>::Signed>;

// SEALIFT_EACH_PART(n, statement): the statement for i = 0 .. n-1, unrolled before any optimisation, so that `part` is
// only ever indexed by constants and lives in registers. No vector has more than two parts unless SEALIFT_LANES widens
// it; offering only as many copies as there can be halves the time to parse this header.
#define SEALIFT_PART_(n, k, ...) if constexpr ((k) < (n)) { constexpr int i = (k); __VA_ARGS__; }
#define SEALIFT_PARTS2_(n, ...) SEALIFT_PART_(n, 0, __VA_ARGS__) SEALIFT_PART_(n, 1, __VA_ARGS__)
#define SEALIFT_PARTS4_(n, ...) SEALIFT_PARTS2_(n, __VA_ARGS__) SEALIFT_PART_(n, 2, __VA_ARGS__) SEALIFT_PART_(n, 3, __VA_ARGS__)
#define SEALIFT_PARTS8_(n, ...) \
  SEALIFT_PARTS4_(n, __VA_ARGS__) SEALIFT_PART_(n, 4, __VA_ARGS__) SEALIFT_PART_(n, 5, __VA_ARGS__) \
  SEALIFT_PART_(n, 6, __VA_ARGS__) SEALIFT_PART_(n, 7, __VA_ARGS__)
#if SEALIFT_LANES == SEALIFT_DEFAULT_LANES
#define SEALIFT_EACH_PART(n, ...) do { SEALIFT_PARTS2_(n, __VA_ARGS__) } while (0)
#elif SEALIFT_LANES == 2 * SEALIFT_DEFAULT_LANES
#define SEALIFT_EACH_PART(n, ...) do { SEALIFT_PARTS4_(n, __VA_ARGS__) } while (0)
#else
#define SEALIFT_EACH_PART(n, ...) do { SEALIFT_PARTS8_(n, __VA_ARGS__) } while (0)
#endif

template <int... I> struct Indices {};
template <int n> using FirstIndices = Indices<__integer_pack(n)...>;

// Elements first .. first + n - 1 of a native vector.
template <int first, class T, int lanes, int... I>
SEALIFT_INLINE typename Native<T, sizeof...(I)>::type slice_(typename Native<T, lanes>::type v, Indices<I...>) {
  return __builtin_shufflevector(v, v, (first + I)...);
}
template <class T, int lanes, int n, int first> SEALIFT_INLINE typename Native<T, n>::type slice(typename Native<T, lanes>::type v) {
  if constexpr (n == lanes) return v;
  else return slice_<first, T, lanes>(v, FirstIndices<n>{});
}
template <class T, int lanes, int... I>
SEALIFT_INLINE typename Native<T, 2 * lanes>::type join_(typename Native<T, lanes>::type lo, typename Native<T, lanes>::type hi, Indices<I...>) {
  return __builtin_shufflevector(lo, hi, I...);
}
template <class T, int lanes> SEALIFT_INLINE typename Native<T, 2 * lanes>::type join(typename Native<T, lanes>::type lo, typename Native<T, lanes>::type hi) {
  return join_<T, lanes>(lo, hi, FirstIndices<2 * lanes>{});
}

// The bits of v as elements of another type of the same width.
template <class To, class From> SEALIFT_INLINE Vec<To> bitcast(Vec<From> v) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the width");
  Vec<To> r;
  SEALIFT_EACH_PART(Vec<To>::kParts, r.part[i] = (PartOf<To>)v.part[i]);
  return r;
}
SEALIFT_INLINE Vec<int32_t> mask_to_int(Mask m) {
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Mask::kParts, r.part[i] = m.part[i]);
  return r;
}
SEALIFT_INLINE Mask int_to_mask(Vec<int32_t> v) {
  Mask r;
  SEALIFT_EACH_PART(Mask::kParts, r.part[i] = v.part[i]);
  return r;
}

template <class T> SEALIFT_INLINE Vec<T> splat(T x) {
  Vec<T> r;
  SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = x - PartOf<T>{});   // x - 0 is x, for -0.0 too
  return r;
}
template <> SEALIFT_INLINE Mask splat<bool>(bool x) { return int_to_mask(splat<int32_t>(-int32_t(x))); }

template <class T> SEALIFT_INLINE T lane(Vec<T> v, int index) {
  constexpr int n = Vec<T>::kPartLanes;
  return v.part[index / n][index % n];
}
template <> SEALIFT_INLINE bool lane<bool>(Mask m, int index) { return lane(mask_to_int(m), index) != 0; }
template <class T> SEALIFT_INLINE T lane0(Vec<T> v) { return lane(v, 0); }

// start, start + 1, ... (integers wrap).
template <class T, int... I> SEALIFT_INLINE Vec<T> iota_(T start, Indices<I...>) {
  typedef typename Element<T>::Unsigned U;
  Vec<T> r;
  if constexpr (Element<T>::is_float) {
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = start + PartOf<T>{T(i * Vec<T>::kPartLanes + I)...});
  } else {
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)(U(start) + UnsignedPart<T>{U(i * Vec<T>::kPartLanes + I)...}));
  }
  return r;
}
template <class T> SEALIFT_INLINE Vec<T> iota(T start) { return iota_<T>(start, FirstIndices<Vec<T>::kPartLanes>{}); }

}  // namespace
}  // namespace SEALIFT_NS
