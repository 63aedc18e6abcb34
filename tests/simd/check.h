// What the test programs of this folder share: counting failures, hostile values, the bits of a number.
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simd/simd.h"

namespace {

int failures = 0;

// Prints the first failures of a program; its exit status says whether there were any.
#define CHECK(condition, ...) \
  do { \
    if (!(condition) && ++failures <= 40) { \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__); \
      printf("\n"); \
    } \
  } while (0)

template <class To, class From> To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  memcpy(&r, &x, sizeof r);
  return r;
}

// Equal as eager tests compare: the same bits, or both NaN.
template <class T> bool same(T a, T b) { return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b); }

template <class T> struct Limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T max = is_signed ? T((((uint64_t)1) << (8 * sizeof(T) - 1)) - 1) : T(-1);
  static constexpr T min = is_signed ? T(-max - 1) : T(0);
};

// Values at which arithmetic goes wrong, for each type.
template <class T> int hostile(T *out) {
  int n = 0;
  if constexpr (T(0.5) != T(0)) {
    const T tiny = sizeof(T) == 4 ? T(1.17549435e-38) : T(2.2250738585072014e-308), huge = sizeof(T) == 4 ? T(3.40282347e+38) : T(1.7976931348623157e308);
    const T positive[] = {0, tiny / 8388608, tiny / 2, tiny, T(1e-20), T(0.1), T(0.25), T(0.5), T(0.75), 1, T(1.5), 2, T(2.5), 3, 7, T(7.7), 127, 128, 255, 256, 32767,
                          32768, 65535, 65536, 8388607, T(8388607.5), 8388608, 16777216, T(16777217), 2147483520, T(2147483647), T(2147483648), T(4294967296), T(4503599627370495.5),
                          T(9223371487098961920), T(9223372036854775807), T(1e20), huge / 2, huge, (T)INFINITY, (T)NAN};
    for (T v : positive) { out[n++] = v; out[n++] = -v; }
  } else {
    typedef Limits<T> L;
    const T list[] = {0, 1, 2, 3, 5, 7, 8, 10, 15, 16, 31, 32, 63, 64, 100, L::max, T(L::max - 1), T(L::max / 2), L::min, T(L::min + 1), T(L::min / 2), T(-1), T(-2), T(-3), T(-7), T(-8), T(-100)};
    for (T v : list) out[n++] = v;
  }
  return n;
}
constexpr int kHostileMax = 128;

}  // namespace
