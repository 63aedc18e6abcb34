// Conversion between element types: cast<To>(v), and masks as all-zeros or all-ones of another width.
#pragma once

#include "parts.h"

namespace SEALIFT_NS {
namespace {

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
    else return bitcast<To>(convert<typename Element<To>::Signed>(mask_to_int(v))) & splat<To>(1);   // unsigned, GCC 12 crashes on x.any(-1).long()
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

}  // namespace
}  // namespace SEALIFT_NS
