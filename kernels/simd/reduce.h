// Over the lanes of one vector: any, all, reduce_add ..
#pragma once

#include "arithmetic.h"

namespace SEALIFT_NS {
namespace {

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
