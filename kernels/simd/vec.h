// Vectors of kLanes elements and the operations that generated kernels are written in.
//
// A map of the file:
//   element types      Vec<T>, Mask, the storage types bf16, f16 and b8
//   parts              how a vector is cut into registers
//   conversion         cast<To>(v), round_to_bf16, round_to_f16
//   memory             load, store, their _partial and _strided forms, gather, splat_load
//   arithmetic         add .. fmod, minimum, maximum, fma
//   comparison         eq .. ge, isnan, select, logical_*, bit_*, shl, shr
//   reduction          any, all, reduce_add ..
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

// ---------------------------------------------------------------------------------------------------------------------
// Instructions of each ISA that GCC's vector operators do not reach

typedef PartOf<float> F32;
typedef PartOf<double> F64;
typedef PartOf<int32_t> I32;
typedef PartOf<int64_t> I64;
typedef char Chars16 __attribute__((vector_size(16)));
typedef short Shorts8 __attribute__((vector_size(16)));
typedef short Shorts16 __attribute__((vector_size(32)));
typedef float Floats4 __attribute__((vector_size(16)));
typedef double Doubles2 __attribute__((vector_size(16)));
typedef int Ints4 __attribute__((vector_size(16)));
typedef long long LongLongs __attribute__((vector_size(kRegisterBytes)));

enum class Rounding { kNearestEven = 0, kDown = 1, kUp = 2, kTowardZero = 3 };   // the encoding of ROUNDPS

#if SEALIFT_TARGET_ISA == 2
SEALIFT_INLINE F32 sqrt_part(F32 v) { return __builtin_ia32_sqrtps512_mask(v, F32{}, (uint16_t)-1, 4); }
SEALIFT_INLINE F64 sqrt_part(F64 v) { return __builtin_ia32_sqrtpd512_mask(v, F64{}, (uint8_t)-1, 4); }
template <Rounding mode> SEALIFT_INLINE F32 round_part(F32 v) { return __builtin_ia32_rndscaleps_mask(v, int(mode) | 8, v, (uint16_t)-1, 4); }
template <Rounding mode> SEALIFT_INLINE F64 round_part(F64 v) { return __builtin_ia32_rndscalepd_mask(v, int(mode) | 8, v, (uint8_t)-1, 4); }
SEALIFT_INLINE F32 fma_part(F32 a, F32 b, F32 c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4); }
SEALIFT_INLINE F64 fma_part(F64 a, F64 b, F64 c) { return __builtin_ia32_vfmaddpd512_mask(a, b, c, (uint8_t)-1, 4); }
SEALIFT_INLINE F32 min_part(F32 a, F32 b) { return __builtin_ia32_minps512_mask(a, b, a, (uint16_t)-1, 4); }
SEALIFT_INLINE F64 min_part(F64 a, F64 b) { return __builtin_ia32_minpd512_mask(a, b, a, (uint8_t)-1, 4); }
SEALIFT_INLINE F32 max_part(F32 a, F32 b) { return __builtin_ia32_maxps512_mask(a, b, a, (uint16_t)-1, 4); }
SEALIFT_INLINE F64 max_part(F64 a, F64 b) { return __builtin_ia32_maxpd512_mask(a, b, a, (uint8_t)-1, 4); }
SEALIFT_INLINE I32 truncate_part(F32 v) { return __builtin_ia32_cvttps2dq512_mask(v, I32{}, (uint16_t)-1, 4); }
SEALIFT_INLINE Native<int32_t, 8>::type truncate_part(F64 v) { return __builtin_ia32_cvttpd2dq512_mask(v, Native<int32_t, 8>::type{}, (uint8_t)-1, 4); }
SEALIFT_INLINE uint32_t bits_part(I32 m) { return (uint16_t)__builtin_ia32_cvtd2mask512(m); }
#elif SEALIFT_TARGET_ISA == 1
SEALIFT_INLINE F32 sqrt_part(F32 v) { return __builtin_ia32_sqrtps256(v); }
SEALIFT_INLINE F64 sqrt_part(F64 v) { return __builtin_ia32_sqrtpd256(v); }
template <Rounding mode> SEALIFT_INLINE F32 round_part(F32 v) { return __builtin_ia32_roundps256(v, int(mode) | 8); }
template <Rounding mode> SEALIFT_INLINE F64 round_part(F64 v) { return __builtin_ia32_roundpd256(v, int(mode) | 8); }
SEALIFT_INLINE F32 fma_part(F32 a, F32 b, F32 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
SEALIFT_INLINE F64 fma_part(F64 a, F64 b, F64 c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
SEALIFT_INLINE F32 min_part(F32 a, F32 b) { return __builtin_ia32_minps256(a, b); }
SEALIFT_INLINE F64 min_part(F64 a, F64 b) { return __builtin_ia32_minpd256(a, b); }
SEALIFT_INLINE F32 max_part(F32 a, F32 b) { return __builtin_ia32_maxps256(a, b); }
SEALIFT_INLINE F64 max_part(F64 a, F64 b) { return __builtin_ia32_maxpd256(a, b); }
SEALIFT_INLINE I32 truncate_part(F32 v) { return __builtin_ia32_cvttps2dq256(v); }
SEALIFT_INLINE Native<int32_t, 4>::type truncate_part(F64 v) { return __builtin_ia32_cvttpd2dq256(v); }
SEALIFT_INLINE uint32_t bits_part(I32 m) { return (uint32_t)__builtin_ia32_movmskps256((F32)m); }
#else
SEALIFT_INLINE F32 sqrt_part(F32 v) { return __builtin_ia32_sqrtps(v); }
SEALIFT_INLINE F64 sqrt_part(F64 v) { return __builtin_ia32_sqrtpd(v); }
SEALIFT_INLINE F32 fma_part(F32 a, F32 b, F32 c) { return a * b + c; }
SEALIFT_INLINE F64 fma_part(F64 a, F64 b, F64 c) { return a * b + c; }
SEALIFT_INLINE F32 min_part(F32 a, F32 b) { return __builtin_ia32_minps(a, b); }
SEALIFT_INLINE F64 min_part(F64 a, F64 b) { return __builtin_ia32_minpd(a, b); }
SEALIFT_INLINE F32 max_part(F32 a, F32 b) { return __builtin_ia32_maxps(a, b); }
SEALIFT_INLINE F64 max_part(F64 a, F64 b) { return __builtin_ia32_maxpd(a, b); }
SEALIFT_INLINE I32 truncate_part(F32 v) { return __builtin_ia32_cvttps2dq(v); }
SEALIFT_INLINE Native<int32_t, 2>::type truncate_part(F64 v) { return slice<int32_t, 4, 2, 0>(__builtin_ia32_cvttpd2dq(v)); }
SEALIFT_INLINE uint32_t bits_part(I32 m) { return (uint32_t)__builtin_ia32_movmskps((F32)m); }
// SSE2 has no ROUNDPS. Adding and subtracting 2^23 (2^52) rounds |v| to an integer, half to even; larger values, which
// are integers already, infinities and NaN are passed through; the sign is put back last, so that -0.25 becomes -0.0.
template <Rounding mode, class P, class I> SEALIFT_INLINE P round_by_magic(P v, P magic, I sign_bit) {
  I sign = (I)v & sign_bit;
  P a = (P)((I)v ^ sign);
  P r = (a + magic) - magic;
  P one = (P)((I)(magic - magic + 1));
  if (mode == Rounding::kTowardZero) r = r - (P)((I)(r > a) & (I)one);
  P s = (P)((I)r | sign);
  if (mode == Rounding::kDown) s = s - (P)((I)(s > v) & (I)one);
  if (mode == Rounding::kUp) s = s + (P)((I)(s < v) & (I)one);
  s = (P)(((I)s & ~sign_bit) | ((mode == Rounding::kDown || mode == Rounding::kUp) ? (I)s & sign_bit : sign));
  if (mode == Rounding::kUp) s = (P)((I)s | sign);   // ceil(-0.25) is -0.0
  return (a < magic) ? s : v;
}
template <Rounding mode> SEALIFT_INLINE F32 round_part(F32 v) { return round_by_magic<mode>(v, F32{} + 8388608.0f, I32{} + INT32_MIN); }
template <Rounding mode> SEALIFT_INLINE F64 round_part(F64 v) { return round_by_magic<mode>(v, F64{} + 4503599627370496.0, I64{} + INT64_MIN); }
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Conversion

// Lane by lane as __builtin_convertvector does it, whatever the number of parts on either side.
template <class To, class From> SEALIFT_INLINE Vec<To> convert_plain(Vec<From> v) {
  constexpr int from_parts = Vec<From>::kParts, to_parts = Vec<To>::kParts;
  Vec<To> r;
  if constexpr (from_parts == to_parts) {
    SEALIFT_EACH_PART(to_parts, r.part[i] = __builtin_convertvector(v.part[i], PartOf<To>));
  } else if constexpr (from_parts > to_parts) {
    constexpr int n = Vec<From>::kPartLanes, ratio = from_parts / to_parts;
    typedef typename Native<To, n>::type Chunk;
    SEALIFT_EACH_PART(to_parts,
      constexpr int k = i * ratio;
      auto c0 = join<To, n>(__builtin_convertvector(v.part[k], Chunk), __builtin_convertvector(v.part[k + 1], Chunk));
      if constexpr (ratio == 2) {
        r.part[i] = c0;
      } else {
        auto c1 = join<To, n>(__builtin_convertvector(v.part[k + 2], Chunk), __builtin_convertvector(v.part[k + 3], Chunk));
        if constexpr (ratio == 4) {
          r.part[i] = join<To, 2 * n>(c0, c1);
        } else {
          auto c2 = join<To, n>(__builtin_convertvector(v.part[k + 4], Chunk), __builtin_convertvector(v.part[k + 5], Chunk));
          auto c3 = join<To, n>(__builtin_convertvector(v.part[k + 6], Chunk), __builtin_convertvector(v.part[k + 7], Chunk));
          r.part[i] = join<To, 4 * n>(join<To, 2 * n>(c0, c1), join<To, 2 * n>(c2, c3));
        }
      });
  } else {
    constexpr int lanes = Vec<From>::kPartLanes, n = Vec<To>::kPartLanes, ratio = to_parts / from_parts;
    SEALIFT_EACH_PART(to_parts,
      r.part[i] = __builtin_convertvector((slice<From, lanes, n, (i % ratio) * n>(v.part[i / ratio])), PartOf<To>));
  }
  return r;
}

// GCC 12 goes through scalar registers for many widths, so the conversions that masks, bf16, f16, quantised and double
// kernels rely on name their instruction. extend_part: the elements of a short vector as a register of the wider type.
#if SEALIFT_TARGET_ISA == 2
SEALIFT_INLINE I32 extend_part(Native<int8_t, 16>::type v, int32_t) { return __builtin_ia32_pmovsxbd512_mask((Chars16)v, I32{}, (uint16_t)-1); }
SEALIFT_INLINE I32 extend_part(Native<uint8_t, 16>::type v, int32_t) { return __builtin_ia32_pmovzxbd512_mask((Chars16)v, I32{}, (uint16_t)-1); }
SEALIFT_INLINE I32 extend_part(Native<int16_t, 16>::type v, int32_t) { return __builtin_ia32_pmovsxwd512_mask((Shorts16)v, I32{}, (uint16_t)-1); }
SEALIFT_INLINE I64 extend_part(Native<int32_t, 8>::type v, int64_t) { return (I64)__builtin_ia32_pmovsxdq512_mask(v, LongLongs{}, (uint8_t)-1); }
SEALIFT_INLINE F64 extend_part(Native<int32_t, 8>::type v, double) { return __builtin_ia32_cvtdq2pd512_mask(v, F64{}, (uint8_t)-1); }
SEALIFT_INLINE F64 extend_part(Native<float, 8>::type v, double) { return __builtin_ia32_cvtps2pd512_mask(v, F64{}, (uint8_t)-1, 4); }
SEALIFT_INLINE Native<int16_t, 16>::type extend_part(Native<int8_t, 16>::type v, int16_t) { return (Native<int16_t, 16>::type)__builtin_ia32_pmovsxbw256_mask((Chars16)v, Shorts16{}, (uint16_t)-1); }
SEALIFT_INLINE Native<int16_t, 16>::type extend_part(Native<uint8_t, 16>::type v, int16_t) { return (Native<int16_t, 16>::type)__builtin_ia32_pmovzxbw256_mask((Chars16)v, Shorts16{}, (uint16_t)-1); }
SEALIFT_INLINE Chars16 low_bytes_part(I32 v) { return __builtin_ia32_pmovdb512_mask(v, Chars16{}, (uint16_t)-1); }
SEALIFT_INLINE Chars16 low_bytes_part(Shorts16 v) { return __builtin_ia32_pmovwb256_mask(v, Chars16{}, (uint16_t)-1); }
SEALIFT_INLINE Shorts16 low_halves_part(I32 v) { return __builtin_ia32_pmovdw512_mask(v, Shorts16{}, (uint16_t)-1); }
SEALIFT_INLINE Native<int32_t, 8>::type low_words_part(I64 v) { return __builtin_ia32_pmovqd512_mask((LongLongs)v, Native<int32_t, 8>::type{}, (uint8_t)-1); }
#elif SEALIFT_TARGET_ISA == 1
template <class T> SEALIFT_INLINE Chars16 low_chars(T v) {
  if constexpr (sizeof(T) == 16) return (Chars16)v;
  else return (Chars16)Native<int64_t, 2>::type{(int64_t)v, 0};
}
SEALIFT_INLINE I32 extend_part(Native<int8_t, 8>::type v, int32_t) { return __builtin_ia32_pmovsxbd256(low_chars(v)); }
SEALIFT_INLINE I32 extend_part(Native<uint8_t, 8>::type v, int32_t) { return __builtin_ia32_pmovzxbd256(low_chars(v)); }
SEALIFT_INLINE I32 extend_part(Native<int16_t, 8>::type v, int32_t) { return __builtin_ia32_pmovsxwd256((Shorts8)v); }
SEALIFT_INLINE I64 extend_part(Native<int32_t, 4>::type v, int64_t) { return (I64)__builtin_ia32_pmovsxdq256(v); }
SEALIFT_INLINE F64 extend_part(Native<int32_t, 4>::type v, double) { return __builtin_ia32_cvtdq2pd256(v); }
SEALIFT_INLINE F64 extend_part(Native<float, 4>::type v, double) { return __builtin_ia32_cvtps2pd256(v); }
SEALIFT_INLINE Native<int64_t, 1>::type low_bytes_part(I32 v) {
  typedef Native<char, 32>::type Chars32;
  Chars32 pick = {0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  I32 r = (I32)__builtin_ia32_pshufb256((Chars32)v, pick);
  Native<int32_t, 4>::type both = __builtin_shufflevector(r, r, 0, 4, 0, 4);
  return Native<int64_t, 1>::type{((Native<int64_t, 2>::type)both)[0]};
}
#else
SEALIFT_INLINE F64 extend_part(Native<int32_t, 2>::type v, double) { return __builtin_ia32_cvtdq2pd(join<int32_t, 2>(v, v)); }
SEALIFT_INLINE F64 extend_part(Native<float, 2>::type v, double) { return __builtin_ia32_cvtps2pd(join<float, 2>(v, v)); }
SEALIFT_INLINE I32 extend_part(Native<int16_t, 4>::type v, int32_t) {   // each element twice, then the copy in the low half shifted out
  Native<int16_t, 8>::type w = join<int16_t, 4>(v, v);
  return (I32)__builtin_shufflevector(w, w, 0, 0, 1, 1, 2, 2, 3, 3) >> 16;
}
#endif

template <class To, class From> struct Extends { static constexpr bool value = false; };
template <> struct Extends<double, int32_t> { static constexpr bool value = true; };
template <> struct Extends<double, float> { static constexpr bool value = true; };
template <> struct Extends<int32_t, int16_t> { static constexpr bool value = true; };
template <> struct Extends<int64_t, int32_t> { static constexpr bool value = kIsa >= 1; };
template <> struct Extends<int16_t, int8_t> { static constexpr bool value = kIsa == 2; };
template <> struct Extends<int16_t, uint8_t> { static constexpr bool value = kIsa == 2; };
template <> struct Extends<int32_t, int8_t> { static constexpr bool value = kIsa >= 1; };
template <> struct Extends<int32_t, uint8_t> { static constexpr bool value = kIsa >= 1; };

template <class To, class From> SEALIFT_INLINE Vec<To> convert(Vec<From> v) {
  constexpr bool integers = !Element<To>::is_float && !Element<From>::is_float;
  Vec<To> r;
  if constexpr (is_same<To, From>) {
    return v;
  } else if constexpr (Extends<To, From>::value) {
    constexpr int lanes = Vec<From>::kPartLanes, n = Vec<To>::kPartLanes, ratio = lanes / n;
    SEALIFT_EACH_PART(Vec<To>::kParts, r.part[i] = extend_part(slice<From, lanes, n, (i % ratio) * n>(v.part[i / ratio]), To{}));
    return r;
  } else if constexpr (integers && sizeof(To) == 8 && sizeof(From) < 4) {
    return convert<To>(convert<int32_t>(v));
  } else if constexpr (integers && sizeof(To) < 4 && sizeof(From) == 8) {
    return convert<To>(convert<int32_t>(v));
  } else if constexpr (integers && sizeof(To) == 4 && sizeof(From) == 8) {
#if SEALIFT_TARGET_ISA == 2
    SEALIFT_EACH_PART(Vec<To>::kParts,
      r.part[i] = (PartOf<To>)join<int32_t, 8>(low_words_part((I64)v.part[2 * i]), low_words_part((I64)v.part[2 * i + 1])));
#elif SEALIFT_TARGET_ISA == 1
    SEALIFT_EACH_PART(Vec<To>::kParts,
      r.part[i] = (PartOf<To>)__builtin_shufflevector((I32)v.part[2 * i], (I32)v.part[2 * i + 1], 0, 2, 4, 6, 8, 10, 12, 14));
#else
    SEALIFT_EACH_PART(Vec<To>::kParts,
      r.part[i] = (PartOf<To>)__builtin_shufflevector((I32)v.part[2 * i], (I32)v.part[2 * i + 1], 0, 2, 4, 6));
#endif
    return r;
#if SEALIFT_TARGET_ISA == 2
  } else if constexpr (integers && sizeof(To) == 1 && sizeof(From) == 4) {
    r.part[0] = (PartOf<To>)low_bytes_part((I32)v.part[0]);
    return r;
  } else if constexpr (integers && sizeof(To) == 1 && sizeof(From) == 2) {
    r.part[0] = (PartOf<To>)low_bytes_part((Shorts16)v.part[0]);
    return r;
  } else if constexpr (integers && sizeof(To) == 2 && sizeof(From) == 4) {
    r.part[0] = (PartOf<To>)low_halves_part((I32)v.part[0]);
    return r;
#elif SEALIFT_TARGET_ISA == 1
  } else if constexpr (integers && sizeof(To) == 1 && sizeof(From) == 4) {
    if constexpr (kLanes == 8) r.part[0] = (PartOf<To>)low_bytes_part((I32)v.part[0]);
    else r.part[0] = (PartOf<To>)join<int64_t, 1>(low_bytes_part((I32)v.part[0]), low_bytes_part((I32)v.part[Vec<From>::kParts - 1]));
    return r;
  } else if constexpr (integers && sizeof(From) == 1 && sizeof(To) == 2) {   // to and from 16 bits, by way of 32
    return convert<To>(convert<int32_t>(v));
  } else if constexpr (integers && sizeof(From) == 2 && sizeof(To) == 1) {
    return convert<To>(convert<int32_t>(bitcast<int16_t>(v)));
#endif
  } else {
    return convert_plain<To>(v);
  }
}

// A mask as all-zeros or all-ones of T's width, and back.
template <class T> SEALIFT_INLINE SignedVec<T> widen_mask(Mask m) { return convert<typename Element<T>::Signed>(mask_to_int(m)); }
template <class T> SEALIFT_INLINE Mask narrow_mask(Vec<T> v) { return int_to_mask(convert<int32_t>(v)); }

// Truncation toward zero, as the hardware's CVTT instructions do it. GCC's own conversion is the same instruction, but
// folds constants that do not fit in another way.
SEALIFT_INLINE Vec<int32_t> truncate32(Vec<float> v) {
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Vec<float>::kParts, r.part[i] = truncate_part(v.part[i]));
  return r;
}
SEALIFT_INLINE Vec<int32_t> truncate32(Vec<double> v) {
  constexpr int n = Vec<double>::kPartLanes;
  Vec<int32_t> r;
  SEALIFT_EACH_PART(Vec<int32_t>::kParts, r.part[i] = join<int32_t, n>(truncate_part(v.part[2 * i]), truncate_part(v.part[2 * i + 1])));
  return r;
}
SEALIFT_INLINE int64_t truncate64_lane(float x) { return __builtin_ia32_cvttss2si64(Floats4{x, 0, 0, 0}); }
SEALIFT_INLINE int64_t truncate64_lane(double x) { return __builtin_ia32_cvttsd2si64(Doubles2{x, 0}); }
template <class T> SEALIFT_INLINE Vec<int64_t> truncate64(Vec<T> v) {
  Vec<int64_t> r;
#if SEALIFT_TARGET_ISA == 2
  if constexpr (is_same<T, double>) {
    SEALIFT_EACH_PART(Vec<int64_t>::kParts, r.part[i] = (I64)__builtin_ia32_cvttpd2qq512_mask(v.part[i], LongLongs{}, (uint8_t)-1, 4));
  } else {
    SEALIFT_EACH_PART(Vec<int64_t>::kParts,
      r.part[i] = (I64)__builtin_ia32_cvttps2qq512_mask((slice<float, 16, 8, 8 * i>(v.part[0])), LongLongs{}, (uint8_t)-1, 4));
  }
#else
  constexpr int n = Vec<int64_t>::kPartLanes;
  SEALIFT_EACH_PART(Vec<int64_t>::kParts,
    if constexpr (n == 4) {
      r.part[i] = PartOf<int64_t>{truncate64_lane(lane(v, n * i)), truncate64_lane(lane(v, n * i + 1)),
                                  truncate64_lane(lane(v, n * i + 2)), truncate64_lane(lane(v, n * i + 3))};
    } else {
      r.part[i] = PartOf<int64_t>{truncate64_lane(lane(v, n * i)), truncate64_lane(lane(v, n * i + 1))};
    });
#endif
  return r;
}

template <class T> SEALIFT_INLINE Mask ne(Vec<T> a, Vec<T> b);
template <class T> SEALIFT_INLINE Vec<T> select(Mask m, Vec<T> a, Vec<T> b);

// cast<To>(v): a C conversion, as ATen has it on x86.
// - To bool: x != 0, so NaN is true. From bool: 0 or 1.
// - Integer to integer keeps the low bits. Integer to float rounds to nearest even, once.
// - Float to int32 or int64 truncates; NaN and what does not fit give INT_MIN of that width.
// - Float to int8 and int16 is float to int32, then the low bits: NaN and |x| >= 2^31 give 0. Float to uint8 is float to
//   int64, then the low bits: NaN gives 0, -1.0 gives 255.
template <class To, class From> SEALIFT_INLINE Vec<To> cast(Vec<From> v) {
  if constexpr (is_same<To, From>) {
    return v;
  } else if constexpr (is_same<To, bool>) {
    return ne(v, Vec<From>{});
  } else if constexpr (is_same<From, bool>) {
    if constexpr (Element<To>::is_float) return select(v, splat<To>(1), Vec<To>{});
    else return bitcast<To>(convert<typename Element<To>::Unsigned>(bitcast<uint32_t>(mask_to_int(v)))) & splat<To>(1);
  } else if constexpr (Element<From>::is_float && !Element<To>::is_float) {
    if constexpr (sizeof(To) == 8) return bitcast<To>(truncate64(v));
    else if constexpr (is_same<From, double> && !Element<To>::is_signed) return convert<To>(truncate64(v));
    else return convert<To>(truncate32(v));   // for a float, the low 8 bits are the same by way of int32 or int64
  } else if constexpr (!Element<From>::is_float && Element<To>::is_float && sizeof(From) < 4) {
    return convert<To>(convert<int32_t>(v));
  } else {
    return convert<To>(v);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Operators, for legible kernels and elementary.h; the names below are what generated code uses

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

// ---------------------------------------------------------------------------------------------------------------------
// bf16 and f16

// The bf16 nearest to each lane, ties to even, as the high half of 32 bits; NaN becomes 0x7FC0, as in c10.
SEALIFT_INLINE Vec<int32_t> bf16_bits_high(Vec<float> v) {
  Vec<int32_t> u = bitcast<int32_t>(v);
  Vec<int32_t> odd = shift_right_logical(u, 16) & splat<int32_t>(1);
  Vec<int32_t> rounded = u + splat<int32_t>(0x7FFF) + odd;
  return select(ne(v, v), splat<int32_t>(0x7FC00000), rounded);
}
SEALIFT_INLINE Vec<int16_t> encode(bf16, Vec<float> v) { return convert<int16_t>(shift_right(bf16_bits_high(v), 16)); }
SEALIFT_INLINE Vec<float> decode(bf16, Vec<int16_t> v) { return bitcast<float>(shift_left(convert<int32_t>(v), 16)); }
SEALIFT_INLINE Vec<float> round_to_bf16(Vec<float> v) { return bitcast<float>(bf16_bits_high(v) & splat<int32_t>(int32_t(0xFFFF0000))); }

// f16: ties to even, overflow to infinity, NaN keeps its sign and the high bits of its payload and becomes quiet (what
// VCVTPS2PH and VCVTPH2PS do; the SSE2 code is bit for bit the same).
#if SEALIFT_TARGET_ISA == 2
SEALIFT_INLINE Vec<int16_t> encode(f16, Vec<float> v) {
  Vec<int16_t> r;
  r.part[0] = __builtin_ia32_vcvtps2ph512_mask(v.part[0], 8, Shorts16{}, (uint16_t)-1);
  return r;
}
SEALIFT_INLINE Vec<float> decode(f16, Vec<int16_t> v) {
  Vec<float> r;
  r.part[0] = __builtin_ia32_vcvtph2ps512_mask(v.part[0], F32{}, (uint16_t)-1, 4);
  return r;
}
#elif SEALIFT_TARGET_ISA == 1
SEALIFT_INLINE Vec<int16_t> encode(f16, Vec<float> v) {
  Vec<int16_t> r;
#if SEALIFT_LANES == 8
  r.part[0] = (PartOf<int16_t>)__builtin_ia32_vcvtps2ph256(v.part[0], 8);
#else
  r.part[0] = join<int16_t, 8>((Native<int16_t, 8>::type)__builtin_ia32_vcvtps2ph256(v.part[0], 8),
                               (Native<int16_t, 8>::type)__builtin_ia32_vcvtps2ph256(v.part[1], 8));
#endif
  return r;
}
SEALIFT_INLINE Vec<float> decode(f16, Vec<int16_t> v) {
  Vec<float> r;
  SEALIFT_EACH_PART(Vec<float>::kParts, r.part[i] = __builtin_ia32_vcvtph2ps256((Shorts8)slice<int16_t, kLanes, 8, 8 * i>(v.part[0])));
  return r;
}
#else
SEALIFT_INLINE Vec<int16_t> encode(f16, Vec<float> v) {
  Vec<int32_t> u = bitcast<int32_t>(v), sign = u & splat<int32_t>(INT32_MIN), a = u ^ sign;
  Vec<int32_t> odd = shift_right_logical(a, 13) & splat<int32_t>(1);
  Vec<int32_t> normal = shift_right(a - splat<int32_t>(0x38000000) + splat<int32_t>(0xFFF) + odd, 13);   // exponent 127 -> 15
  Vec<int32_t> tiny = bitcast<int32_t>(bitcast<float>(a) + splat<float>(0.5f)) - splat<int32_t>(0x3F000000);   // 0.5's last bit is 2^-24
  Vec<int32_t> nan = (shift_right(a, 13) & splat<int32_t>(0x3FF)) | splat<int32_t>(0x7E00);
  Vec<int32_t> r = select(a < splat<int32_t>(0x38800000), tiny, normal);
  r = select(a >= splat<int32_t>(0x477FF000), splat<int32_t>(0x7C00), r);   // 65520 and more round to infinity
  r = select(a > splat<int32_t>(0x7F800000), nan, r);
  return convert<int16_t>(r | shift_right_logical(sign, 16));
}
SEALIFT_INLINE Vec<float> decode(f16, Vec<int16_t> v) {
  Vec<int32_t> u = convert<int32_t>(v), sign = shift_left(u & splat<int32_t>(0x8000), 16);
  Vec<int32_t> a = shift_left(u & splat<int32_t>(0x7FFF), 13);
  Vec<int32_t> normal = a + splat<int32_t>(0x38000000);
  Vec<int32_t> tiny = bitcast<int32_t>(bitcast<float>(a + splat<int32_t>(0x38800000)) - bitcast<float>(splat<int32_t>(0x38800000)));
  Vec<int32_t> r = select(a < splat<int32_t>(0x00800000), tiny, normal);
  Vec<int32_t> special = (a + splat<int32_t>(0x70000000)) | select(a > splat<int32_t>(0x0F800000), splat<int32_t>(0x00400000), splat<int32_t>(0));
  r = select(a >= splat<int32_t>(0x0F800000), special, r);
  return bitcast<float>(r | sign);
}
#endif
SEALIFT_INLINE Vec<float> round_to_f16(Vec<float> v) { return decode(f16{}, encode(f16{}, v)); }

SEALIFT_INLINE Mask decode(b8, Vec<uint8_t> v) { return ne(v, Vec<uint8_t>{}); }
SEALIFT_INLINE Vec<uint8_t> encode(b8, Mask m) { return cast<uint8_t>(m); }
template <class T> SEALIFT_INLINE Vec<T> decode(T, Vec<T> v) { return v; }
template <class T> SEALIFT_INLINE Vec<T> encode(T, Vec<T> v) { return v; }

// ---------------------------------------------------------------------------------------------------------------------
// Memory. S is float, double, an integer, bf16, f16 or b8; no alignment is needed.

template <class S> using RawOf = typename Storage<S>::Raw;
template <class S> using ComputeOf = typename Storage<S>::Compute;

template <class S> SEALIFT_INLINE RawOf<S> raw_load1(const S *p) {
  RawOf<S> r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}

template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> load(const S *p) {
  typedef Vec<RawOf<S>> V;
  V r;
  SEALIFT_EACH_PART(V::kParts, __builtin_memcpy(&r.part[i], p + i * V::kPartLanes, V::kPartBytes));
  return decode(S{}, r);
}
template <class S> SEALIFT_INLINE void store(S *p, Vec<ComputeOf<S>> v) {
  typedef Vec<RawOf<S>> V;
  V r = encode(S{}, v);
  SEALIFT_EACH_PART(V::kParts, __builtin_memcpy(p + i * V::kPartLanes, &r.part[i], V::kPartBytes));
}
// One element, in every lane.
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> splat_load(const S *p) { return decode(S{}, splat<RawOf<S>>(raw_load1(p))); }

// n elements, 0 <= n < kLanes, in moves of 2^k.
template <int element_bytes> SEALIFT_INLINE void copy_elements(void *to, const void *from, int64_t n) {
  char *d = (char *)to;
  const char *s = (const char *)from;
  if constexpr (kLanes > 8) { if (n & 8) { __builtin_memcpy(d, s, 8 * element_bytes); d += 8 * element_bytes; s += 8 * element_bytes; } }
  if constexpr (kLanes > 4) { if (n & 4) { __builtin_memcpy(d, s, 4 * element_bytes); d += 4 * element_bytes; s += 4 * element_bytes; } }
  if (n & 2) { __builtin_memcpy(d, s, 2 * element_bytes); d += 2 * element_bytes; s += 2 * element_bytes; }
  if (n & 1) { __builtin_memcpy(d, s, element_bytes); }
}

// The first n elements (0 <= n < kLanes; bytes past them are never touched), zero in the other lanes.
template <class T> SEALIFT_INLINE Vec<T> raw_load_partial(const void *p, int64_t n) {
  Vec<T> r;
#if SEALIFT_TARGET_ISA == 2
  const uint32_t k = (1u << n) - 1;
  if constexpr (is_same<T, float>) r.part[0] = __builtin_ia32_loadups512_mask((const float *)p, F32{}, (uint16_t)k);
  else if constexpr (sizeof(T) == 4) r.part[0] = (PartOf<T>)__builtin_ia32_loaddqusi512_mask((const int *)p, I32{}, (uint16_t)k);
  else if constexpr (is_same<T, double>) { SEALIFT_EACH_PART(2, r.part[i] = __builtin_ia32_loadupd512_mask((const double *)p + 8 * i, F64{}, (uint8_t)(k >> (8 * i)))); }
  else if constexpr (sizeof(T) == 8) { SEALIFT_EACH_PART(2, r.part[i] = (PartOf<T>)__builtin_ia32_loaddqudi512_mask((const long long *)p + 8 * i, LongLongs{}, (uint8_t)(k >> (8 * i)))); }
  else if constexpr (sizeof(T) == 2) r.part[0] = (PartOf<T>)__builtin_ia32_loaddquhi256_mask((const short *)p, Shorts16{}, (uint16_t)k);
  else r.part[0] = (PartOf<T>)__builtin_ia32_loaddquqi128_mask((const char *)p, Chars16{}, (uint16_t)k);
#else
#if SEALIFT_TARGET_ISA == 1
  if constexpr (sizeof(T) == 4) {
    Vec<int32_t> m = mask_to_int(first_lanes(n));
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)__builtin_ia32_maskloadd256((const I32 *)p + i, m.part[i]));
    return r;
  } else if constexpr (sizeof(T) == 8) {
    Vec<int64_t> m = convert<int64_t>(mask_to_int(first_lanes(n)));
    SEALIFT_EACH_PART(Vec<T>::kParts, r.part[i] = (PartOf<T>)__builtin_ia32_maskloadq256((const LongLongs *)p + i, (LongLongs)m.part[i]));
    return r;
  }
#endif
  r = Vec<T>{};
  copy_elements<sizeof(T)>(&r, p, n);
#endif
  return r;
}
template <class T> SEALIFT_INLINE void raw_store_partial(void *p, Vec<T> v, int64_t n) {
#if SEALIFT_TARGET_ISA == 2
  const uint32_t k = (1u << n) - 1;
  if constexpr (is_same<T, float>) __builtin_ia32_storeups512_mask((float *)p, v.part[0], (uint16_t)k);
  else if constexpr (sizeof(T) == 4) __builtin_ia32_storedqusi512_mask((int *)p, (I32)v.part[0], (uint16_t)k);
  else if constexpr (is_same<T, double>) { SEALIFT_EACH_PART(2, __builtin_ia32_storeupd512_mask((double *)p + 8 * i, v.part[i], (uint8_t)(k >> (8 * i)))); }
  else if constexpr (sizeof(T) == 8) { SEALIFT_EACH_PART(2, __builtin_ia32_storedqudi512_mask((long long *)p + 8 * i, (LongLongs)v.part[i], (uint8_t)(k >> (8 * i)))); }
  else if constexpr (sizeof(T) == 2) __builtin_ia32_storedquhi256_mask((short *)p, (Shorts16)v.part[0], (uint16_t)k);
  else __builtin_ia32_storedquqi128_mask((char *)p, (Chars16)v.part[0], (uint16_t)k);
#else
#if SEALIFT_TARGET_ISA == 1
  if constexpr (sizeof(T) == 4) {
    Vec<int32_t> m = mask_to_int(first_lanes(n));
    SEALIFT_EACH_PART(Vec<T>::kParts, __builtin_ia32_maskstored256((I32 *)p + i, m.part[i], (I32)v.part[i]));
    return;
  } else if constexpr (sizeof(T) == 8) {
    Vec<int64_t> m = convert<int64_t>(mask_to_int(first_lanes(n)));
    SEALIFT_EACH_PART(Vec<T>::kParts, __builtin_ia32_maskstoreq256((LongLongs *)p + i, (LongLongs)m.part[i], (LongLongs)v.part[i]));
    return;
  }
#endif
  copy_elements<sizeof(T)>(p, &v, n);
#endif
}
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> load_partial(const S *p, int64_t n) { return decode(S{}, raw_load_partial<RawOf<S>>(p, n)); }
template <class S> SEALIFT_INLINE void store_partial(S *p, Vec<ComputeOf<S>> v, int64_t n) { raw_store_partial(p, encode(S{}, v), n); }

// Element i at p[i * stride_elems]; the stride may be zero or negative.
template <class S, int... I> SEALIFT_INLINE Vec<RawOf<S>> raw_load_strided(const S *p, int64_t stride_elems, Indices<I...>) {
  typedef Vec<RawOf<S>> V;
  V r;
  SEALIFT_EACH_PART(V::kParts, r.part[i] = typename V::Part{raw_load1(p + (i * V::kPartLanes + I) * stride_elems)...});
  return r;
}
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> load_strided(const S *p, int64_t stride_elems) {
  return decode(S{}, raw_load_strided(p, stride_elems, FirstIndices<Vec<RawOf<S>>::kPartLanes>{}));
}
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> load_strided_partial(const S *p, int64_t stride_elems, int64_t n) {
  RawOf<S> lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = raw_load1(p + i * stride_elems);
  return decode(S{}, load(lanes));
}
template <class S> SEALIFT_INLINE void store_strided_partial(S *p, int64_t stride_elems, Vec<ComputeOf<S>> v, int64_t n) {
  RawOf<S> lanes[kLanes];
  store(lanes, encode(S{}, v));
  for (int64_t i = 0; i < n; ++i) __builtin_memcpy(p + i * stride_elems, &lanes[i], sizeof(S));
}
template <class S> SEALIFT_INLINE void store_strided(S *p, int64_t stride_elems, Vec<ComputeOf<S>> v) { store_strided_partial(p, stride_elems, v, kLanes); }

// Element i at base[index[i]]. In the partial form, lanes n and above touch nothing and are zero.
template <class S, int... I> SEALIFT_INLINE Vec<RawOf<S>> raw_gather(const S *base, Vec<int64_t> index, Indices<I...>) {
  typedef Vec<RawOf<S>> V;
  V r;
  SEALIFT_EACH_PART(V::kParts, r.part[i] = typename V::Part{raw_load1(base + lane(index, i * V::kPartLanes + I))...});
  return r;
}
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> gather(const S *base, Vec<int64_t> index) {
  return decode(S{}, raw_gather(base, index, FirstIndices<Vec<RawOf<S>>::kPartLanes>{}));
}
template <class S> SEALIFT_INLINE Vec<ComputeOf<S>> gather_partial(const S *base, Vec<int64_t> index, int64_t n) {
  int64_t at[kLanes];
  store(at, index);
  RawOf<S> lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = raw_load1(base + at[i]);
  return decode(S{}, load(lanes));
}

// ---------------------------------------------------------------------------------------------------------------------
// Arithmetic

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

// ---------------------------------------------------------------------------------------------------------------------
// Reduction

SEALIFT_INLINE uint32_t mask_bits(Mask m) {   // bit i is lane i
  uint32_t r = 0;
  SEALIFT_EACH_PART(Mask::kParts, r |= bits_part(m.part[i]) << (i * Mask::kPartLanes));
  return r;
}
SEALIFT_INLINE bool any(Mask m) { return mask_bits(m) != 0; }
SEALIFT_INLINE bool all(Mask m) { return mask_bits(m) == uint32_t((1ull << kLanes) - 1); }
SEALIFT_INLINE bool any_partial(Mask m, int64_t n) { return (mask_bits(m) & uint32_t((1ull << n) - 1)) != 0; }
SEALIFT_INLINE bool all_partial(Mask m, int64_t n) { return (~mask_bits(m) & uint32_t((1ull << n) - 1)) == 0; }

template <int step, class T, int... I> SEALIFT_INLINE Vec<T> swap_lanes(Vec<T> v, Indices<I...>) {
  Vec<T> r = v;
  r.part[0] = __builtin_shufflevector(v.part[0], v.part[0], (I ^ step)...);
  return r;
}
template <int n, class T> SEALIFT_INLINE Vec<T> upper_parts(Vec<T> v) {
  Vec<T> r = v;
  SEALIFT_EACH_PART(n, r.part[i] = v.part[i + n]);
  return r;
}
// The tree: lane i with lane i + kLanes/2, then with i + kLanes/4, ... down to 1. The order depends on kLanes only, not
// on how the lanes are cut into registers.
template <class Op, class T> SEALIFT_INLINE T reduce_tree(Vec<T> v) {
  constexpr int parts = Vec<T>::kParts, n = Vec<T>::kPartLanes;
  if constexpr (parts > 4) v = Op::apply(v, upper_parts<4>(v));
  if constexpr (parts > 2) v = Op::apply(v, upper_parts<2>(v));
  if constexpr (parts > 1) v = Op::apply(v, upper_parts<1>(v));
  if constexpr (n > 8) v = Op::apply(v, swap_lanes<8>(v, FirstIndices<n>{}));
  if constexpr (n > 4) v = Op::apply(v, swap_lanes<4>(v, FirstIndices<n>{}));
  if constexpr (n > 2) v = Op::apply(v, swap_lanes<2>(v, FirstIndices<n>{}));
  if constexpr (n > 1) v = Op::apply(v, swap_lanes<1>(v, FirstIndices<n>{}));
  return v.part[0][0];
}
#define SEALIFT_REDUCE_(name, function) \
  struct name##_op { template <class T> static SEALIFT_INLINE Vec<T> apply(Vec<T> a, Vec<T> b) { return function(a, b); } }; \
  template <class T> SEALIFT_INLINE T name(Vec<T> v) { return reduce_tree<name##_op>(v); }
SEALIFT_REDUCE_(reduce_add, add)
SEALIFT_REDUCE_(reduce_mul, mul)
SEALIFT_REDUCE_(reduce_min, minimum)   // NaN if any lane is
SEALIFT_REDUCE_(reduce_max, maximum)
SEALIFT_REDUCE_(reduce_and, bit_and)
SEALIFT_REDUCE_(reduce_or, bit_or)
SEALIFT_REDUCE_(reduce_xor, bit_xor)
#undef SEALIFT_REDUCE_
SEALIFT_INLINE bool reduce_and(Mask m) { return all(m); }
SEALIFT_INLINE bool reduce_or(Mask m) { return any(m); }

}  // namespace
}  // namespace SEALIFT_NS
