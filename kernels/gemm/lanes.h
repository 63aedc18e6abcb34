// One vector register of floats as the GEMM and attention kernels hold it: a bare GCC vector, so that arrays of accumulators stay in registers.
//
// With -DSEALIFT_LANES=16 in a narrower ISA the compiler splits each vector: that runs the logic of the AVX-512 kernels on any machine.
#ifndef SEALIFT_KERNELS_GEMM_LANES_H
#define SEALIFT_KERNELS_GEMM_LANES_H

#include "../simd/simd.h"

namespace SEALIFT_NS {
namespace {

constexpr int kWidth = kLanes;

typedef float Lanes __attribute__((vector_size(kWidth * 4)));
typedef float LanesAnywhere __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

SEALIFT_INLINE Lanes load_lanes(const float *p) { return *reinterpret_cast<const LanesAnywhere *>(p); }
SEALIFT_INLINE void store_lanes(float *p, Lanes x) { *reinterpret_cast<LanesAnywhere *>(p) = x; }
SEALIFT_INLINE Lanes broadcast(float x) { return x - Lanes{}; } // x - 0 is x, for -0.0 too

// The same lanes as the type that kernels/simd computes with.
union LanesParts {
  Lanes whole;
  Vec<float> vec;
};
SEALIFT_INLINE Vec<float> to_vec(Lanes x) {
  return LanesParts{x}.vec;
}
SEALIFT_INLINE Lanes to_lanes(Vec<float> x) {
  LanesParts u;
  u.vec = x;
  return u.whole;
}

// a * b + c: fused wherever the ISA has it, two roundings in the baseline. Never left to the compiler's contraction.
SEALIFT_INLINE Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#if SEALIFT_TARGET_ISA == 0
  return a * b + c;
#else
  LanesParts x{a}, y{b}, z{c};
  SEALIFT_EACH_PART(Vec<float>::kParts, z.vec.part[i] = fma_part(x.vec.part[i], y.vec.part[i], z.vec.part[i]));
  return z.whole;
#endif
}

// sum[v] += a * b[v], each in the register where it lies, with one broadcast of a for all. Left to itself gcc 12 moves sums from register to register
// (vfmadd132), fetches broadcasts early, and then spills some sums in the middle of a tile's loop: a tenth to a third of the speed.
template <int kVectors>
SEALIFT_INLINE void accumulate(Lanes (&sum)[kVectors], const float &a, const Lanes (&b)[kVectors]) {
#if SEALIFT_TARGET_ISA >= 1 && SEALIFT_LANES == SEALIFT_DEFAULT_LANES
  Lanes every;
  if constexpr (kVectors == 1) asm("vbroadcastss %2, %1\n\tvfmadd231ps %3, %1, %0" : "+v"(sum[0]), "=&v"(every) : "m"(a), "v"(b[0]));
  if constexpr (kVectors == 2) asm("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1" : "+v"(sum[0]), "+v"(sum[1]), "=&v"(every) : "m"(a), "v"(b[0]), "v"(b[1]));
  if constexpr (kVectors == 3)
    asm("vbroadcastss %4, %3\n\tvfmadd231ps %5, %3, %0\n\tvfmadd231ps %6, %3, %1\n\tvfmadd231ps %7, %3, %2"
        : "+v"(sum[0]), "+v"(sum[1]), "+v"(sum[2]), "=&v"(every)
        : "m"(a), "v"(b[0]), "v"(b[1]), "v"(b[2]));
  if constexpr (kVectors <= 3) return;
#endif
  const Lanes all = broadcast(a);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v++) sum[v] = multiply_add(all, b[v], sum[v]);
}

// sum[i][v] += a[i] * b[v] for three rows and a vector of B that lies in memory: its register is the sixteenth, where sums and broadcasts fill fifteen.
template <int kVectors>
SEALIFT_INLINE void accumulate_three(Lanes (&sum)[3][kVectors], int v, const Lanes (&a)[3], const float *b) {
#if SEALIFT_TARGET_ISA >= 1 && SEALIFT_LANES == SEALIFT_DEFAULT_LANES
  Lanes bv;
  asm("vmovups %7, %3\n\tvfmadd231ps %3, %4, %0\n\tvfmadd231ps %3, %5, %1\n\tvfmadd231ps %3, %6, %2"
      : "+v"(sum[0][v]), "+v"(sum[1][v]), "+v"(sum[2][v]), "=&v"(bv)
      : "v"(a[0]), "v"(a[1]), "v"(a[2]), "m"(*reinterpret_cast<const LanesAnywhere *>(b)));
#else
  const Lanes bv = load_lanes(b);
#pragma GCC unroll 4
  for (int i = 0; i < 3; i++) sum[i][v] = multiply_add(a[i], bv, sum[i][v]);
#endif
}

// sum += a * b, likewise: a from a register, or from memory where nothing else wants it.
SEALIFT_INLINE void accumulate_product(Lanes &sum, const Lanes &a, const Lanes &b) {
#if SEALIFT_TARGET_ISA >= 1 && SEALIFT_LANES == SEALIFT_DEFAULT_LANES
  asm("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
  sum = multiply_add(a, b, sum);
#endif
}
SEALIFT_INLINE void accumulate_product(Lanes &sum, const float *a, const Lanes &b) {
#if SEALIFT_TARGET_ISA >= 1 && SEALIFT_LANES == SEALIFT_DEFAULT_LANES
  asm("vfmadd231ps %1, %2, %0" : "+v"(sum) : "m"(*reinterpret_cast<const LanesAnywhere *>(a)), "v"(b));
#else
  sum = multiply_add(load_lanes(a), b, sum);
#endif
}

// The first count lanes, 0 <= count < kWidth; the rest of a load are zero. Memory past them is not touched.
SEALIFT_INLINE Lanes load_part(const float *p, int64_t count) { return to_lanes(load_partial(p, count)); }
SEALIFT_INLINE void store_part(float *p, Lanes x, int64_t count) { store_partial(p, to_vec(x), count); }

// b where either is NaN, and where both are zero.
SEALIFT_INLINE Lanes larger(Lanes a, Lanes b) {
  LanesParts x{a}, y{b};
  SEALIFT_EACH_PART(Vec<float>::kParts, x.vec.part[i] = max_part(x.vec.part[i], y.vec.part[i]));
  return x.whole;
}
SEALIFT_INLINE Lanes smaller(Lanes a, Lanes b) {
  LanesParts x{a}, y{b};
  SEALIFT_EACH_PART(Vec<float>::kParts, x.vec.part[i] = min_part(x.vec.part[i], y.vec.part[i]));
  return x.whole;
}

} // namespace
} // namespace SEALIFT_NS
#endif
