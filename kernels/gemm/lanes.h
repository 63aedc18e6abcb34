// One vector register of floats as the GEMM and attention kernels use it: load, store (whole and partial), broadcast, multiply-add.
//
// SEALIFT_LANES overrides the width: tests build the 16-lane kernels on a machine without AVX-512, where the compiler splits each vector in two.
#ifndef SEALIFT_KERNELS_GEMM_LANES_H
#define SEALIFT_KERNELS_GEMM_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "../simd/isa.h"

#define SEALIFT_INLINE inline __attribute__((always_inline))

namespace SEALIFT_NS {
namespace {

#ifdef SEALIFT_LANES
constexpr int kWidth = SEALIFT_LANES;
#else
constexpr int kWidth = kLanes;
#endif

typedef float Lanes __attribute__((vector_size(kWidth * 4)));
typedef float LanesAnywhere __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

SEALIFT_INLINE Lanes load(const float *p) { return *reinterpret_cast<const LanesAnywhere *>(p); }
SEALIFT_INLINE void store(float *p, Lanes x) { *reinterpret_cast<LanesAnywhere *>(p) = x; }
SEALIFT_INLINE Lanes broadcast(float x) { return x - Lanes{}; }

// a * b + c: fused wherever the ISA has it, two roundings in the baseline. Never left to the compiler's contraction.
SEALIFT_INLINE Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__) && !defined(SEALIFT_LANES)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && !defined(SEALIFT_LANES)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  union Parts {
    Lanes whole;
    __m256 part[kWidth / 8];
  } x{a}, y{b}, z{c};
  for (int i = 0; i < kWidth / 8; i++) z.part[i] = _mm256_fmadd_ps(x.part[i], y.part[i], z.part[i]);
  return z.whole;
#else
  return a * b + c;
#endif
}

// The first count lanes, 0 <= count <= kWidth; the rest of a load are zero. Memory past them is not touched.
SEALIFT_INLINE Lanes load_part(const float *p, int count) {
#if defined(__AVX512F__) && !defined(SEALIFT_LANES)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#else
  union {
    Lanes whole;
    float part[kWidth];
  } x{};
  for (int i = 0; i < kWidth; i++)
    if (i < count) x.part[i] = p[i];
  return x.whole;
#endif
}

SEALIFT_INLINE void store_part(float *p, Lanes v, int count) {
#if defined(__AVX512F__) && !defined(SEALIFT_LANES)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v);
#else
  union {
    Lanes whole;
    float part[kWidth];
  } x{v};
  for (int i = 0; i < kWidth; i++)
    if (i < count) p[i] = x.part[i];
#endif
}

} // namespace
} // namespace SEALIFT_NS
#endif
