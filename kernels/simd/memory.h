// load, store, their _partial and _strided forms, gather, splat_load.
// S is float, double, an integer, bf16, f16 or b8; no alignment is needed.
#pragma once

#include "half.h"

namespace SEALIFT_NS {
namespace {

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

}  // namespace
}  // namespace SEALIFT_NS
