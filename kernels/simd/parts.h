// On one register: the instructions of each ISA that GCC's vector operators do not reach.
#pragma once

#include "vec.h"

namespace SEALIFT_NS {
namespace {

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

}  // namespace
}  // namespace SEALIFT_NS
