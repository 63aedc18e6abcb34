// Which instruction set this unit is compiled for, and what follows from it: the namespace, the number of lanes.
//
// A unit is compiled once per instruction set, with
//   -DSEALIFT_TARGET_ISA=0    plain x86-64 (SSE2)                              namespace sealift_baseline, 4 lanes
//   -DSEALIFT_TARGET_ISA=1    -mavx2 -mfma -mf16c -mbmi -mbmi2 ...             namespace sealift_avx2,     8 lanes
//   -DSEALIFT_TARGET_ISA=2    -mavx512{f,bw,cd,dq,vl} and all of the above     namespace sealift_avx512,  16 lanes
// -DSEALIFT_LANES=16 widens the vectors of ISA 0 and 1 to 16 lanes (several registers each), so that code meant for
// AVX-512 can be run on a machine without it.
//
// Everything in kernels/simd lives in SEALIFT_NS and there in an anonymous namespace, because the objects of several
// instruction sets end up in one library: a function the linker could merge with another's (a weak symbol) might bring
// AVX-512 code to a machine that has none. tests/simd holds that no object has one.
//
// Only the three C headers below are included, ever: immintrin.h alone costs 0.3 s a unit.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef SEALIFT_TARGET_ISA
#error "compile with -DSEALIFT_TARGET_ISA=0 (baseline), 1 (AVX2) or 2 (AVX-512)"
#endif

#if SEALIFT_TARGET_ISA == 0
#define SEALIFT_NS sealift_baseline
#define SEALIFT_DEFAULT_LANES 4
#elif SEALIFT_TARGET_ISA == 1
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "SEALIFT_TARGET_ISA=1 needs -mavx2 -mfma -mf16c"
#endif
#define SEALIFT_NS sealift_avx2
#define SEALIFT_DEFAULT_LANES 8
#elif SEALIFT_TARGET_ISA == 2
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512CD__) || !defined(__AVX512DQ__) || \
    !defined(__AVX512VL__) || !defined(__FMA__) || !defined(__F16C__)
#error "SEALIFT_TARGET_ISA=2 needs -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mfma -mf16c"
#endif
#define SEALIFT_NS sealift_avx512
#define SEALIFT_DEFAULT_LANES 16
#else
#error "unknown SEALIFT_TARGET_ISA"
#endif

#ifndef SEALIFT_LANES
#define SEALIFT_LANES SEALIFT_DEFAULT_LANES
#endif

#if SEALIFT_LANES < SEALIFT_DEFAULT_LANES || SEALIFT_LANES > 16 || (SEALIFT_LANES & (SEALIFT_LANES - 1)) != 0
#error "SEALIFT_LANES must be a power of two from the instruction set's own number of lanes to 16"
#endif

#define SEALIFT_INLINE inline __attribute__((always_inline))

// A model library must load with glibc 2.28. exp, exp2, log, log2 and pow of double got a second version in 2.29, fmod in
// 2.38; both differ from the first only in leaving out the SVID error handler, which does nothing by default. This binds
// them to the first version, and adds no symbol to a unit that calls none of them. (float's expf, logf and powf are of 2.27.)
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(
    ".symver exp, exp@GLIBC_2.2.5\n"
    ".symver exp2, exp2@GLIBC_2.2.5\n"
    ".symver log, log@GLIBC_2.2.5\n"
    ".symver log2, log2@GLIBC_2.2.5\n"
    ".symver pow, pow@GLIBC_2.2.5\n"
    ".symver fmod, fmod@GLIBC_2.2.5\n"
    ".symver fmodf, fmodf@GLIBC_2.2.5\n");
#endif

namespace SEALIFT_NS {
namespace {

constexpr int kIsa = SEALIFT_TARGET_ISA;
constexpr int kLanes = SEALIFT_LANES;                    // of every vector, whatever its element type
constexpr int kRegisterBytes = 4 * SEALIFT_DEFAULT_LANES;  // of the widest register

}  // namespace
}  // namespace SEALIFT_NS
