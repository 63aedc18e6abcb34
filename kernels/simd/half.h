// bf16 and f16, which are storage only: decoded to floats, and encoded with c10's rounding.
#pragma once

#include "operators.h"

namespace SEALIFT_NS {
namespace {

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

}  // namespace
}  // namespace SEALIFT_NS
