// elementary.h against libm in double: the largest error of each float function in ULP, exact special values, and lanes
// that do not depend on their neighbours.
//
//   accuracy [step]     tests every step-th float of all 2^32 (default 2999) and prints a table; 1 is exhaustive
//   accuracy bench      prints nanoseconds and time-stamp cycles per vector
#include "check.h"

#include <time.h>
#include <x86intrin.h>

#include <initializer_list>

using namespace SEALIFT_NS;

namespace {

typedef Vec<float> V;
typedef Vec<double> D;

// |got - want| in units of the last place of a float near want; 0 where both are NaN or want rounds to got.
double ulp_error(float got, double want) {
  if (want != want || got != got) return want != want && got != got ? 0 : 1e9;
  if (float(want) == got) return isinf(got) ? 0 : fabs(double(got) - want) / ldexp(1, (fabs(want) < 1.17549435e-38 ? -125 : ilogb(want) + 1) - 24);
  if (isinf(got) || isinf(float(want))) {   // of one that should have overflowed, or not, by how much it missed
    if ((got > 0) != (want > 0)) return 1e9;
    const double a = isinf(got) ? ldexp(1, 128) : fabs(got), b = fabs(want);
    return fabs(a - b) / ldexp(1, 104);
  }
  return fabs(double(got) - want) / ldexp(1, (fabs(want) < 1.17549435e-38 ? -125 : ilogb(want) + 1) - 24);
}

struct Row {
  const char *name;
  V (*function)(V);
  double (*reference)(double);
  double limit;   // ULP
};
double sigmoid_d(double x) { return x < 0 ? ::exp(x) / (1 + ::exp(x)) : 1 / (1 + ::exp(-x)); }
// The values of eager's formulas, -inf included.
double gelu_erf_d(double x) { return 0.5 * x * ::erfc(-x * 0.70710678118654752440); }
double gelu_tanh_d(double x) { return x / (1 + ::exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))); }
double silu_d(double x) { return x / (1 + ::exp(-x)); }

const Row kRows[] = {
#define ROW(f, limit) {#f, [](V v) { return f(v); }, [](double x) -> double { return ::f(x); }, limit},
#define ROW2(f, reference, limit) {#f, [](V v) { return f(v); }, [](double x) -> double { return reference; }, limit},
    ROW(exp, 1.05) ROW(exp2, 1.1) ROW(expm1, 1.1) ROW(log, 0.9) ROW(log2, 1.9) ROW(log10, 1.8) ROW(log1p, 1.5) ROW(tanh, 1.5)
    ROW2(sigmoid, sigmoid_d(x), 2) ROW(erf, 1.1) ROW(erfc, 0.51) ROW(sin, 1.4) ROW(cos, 1.4)
    ROW2(gelu_erf, gelu_erf_d(x), 6.5) ROW2(gelu_tanh, gelu_tanh_d(x), 4) ROW2(silu, silu_d(x), 3)
    ROW(tan, 0.51) ROW(asin, 0.51) ROW(acos, 0.51) ROW(atan, 0.51) ROW(sinh, 0.51) ROW(cosh, 0.51) ROW(asinh, 0.51) ROW(acosh, 0.51) ROW(atanh, 0.51)
    ROW2(rsqrt, 1 / ::sqrt(x), 1.55) ROW(sqrt, 0.51) ROW(floor, 0) ROW(ceil, 0) ROW(trunc, 0) ROW2(round, ::rint(x), 0)
};

void sweep(const Row &row, uint64_t step) {
  double worst = 0;
  float at = 0;
  auto block = [&](const float *x) {
    float out[kLanes];
    store(out, row.function(load(x)));
    for (int i = 0; i < kLanes; ++i) {
      double want = row.reference(double(x[i])), e = ulp_error(out[i], want);
      if (out[i] == 0 && want == 0) CHECK(signbit(out[i]) == signbit(want), "%s(%a) is %g, not %g", row.name, x[i], out[i], want);
      if (!(e <= worst)) worst = e, at = x[i];
    }
  };
  float x[kLanes];
  for (uint64_t b = 0; b < 1ull << 32; b += step * kLanes) {
    for (int i = 0; i < kLanes; ++i) x[i] = bits_as<float>(uint32_t(b + i * step));
    block(x);
  }
  // Floats next to powers of two, to round numbers, to multiples of pi/4 and to where results over- and underflow.
  const double near[] = {0, 0.25, 0.5, 0.625, 0.9, 1, 2, 4, 10, 10.05, 12, 14.5, 88.7228, 87.3365, 103.279, 103.97, 119, 126, 128, 149, 150, 709, 65536, 16777216, 2.4414e-4, 2e-4, 5.9e-8,
                         1.1754944e-38, 3.4028e38, 1e-40, 8388608, 0.34657, 0.70710678, 1.41421356, 9.0, 1e-20, 1e20};
  float list[8192];
  int n = 0;
  auto around = [&](double c) {
    for (int d = -24; d < 24; ++d) for (int sign = 0; sign < 2; ++sign) list[n++] = bits_as<float>(bits_as<uint32_t>(float(c)) + (c == 0 && d < 0 ? -d : d)) * (sign ? -1.0f : 1.0f);
    if (n > 8192 - 100) { for (int i = 0; i + kLanes <= n; i += kLanes) block(list + i); n = 0; }
  };
  for (double c : near) around(c);
  for (int k = 1; k < 200; ++k) around(k * 0.78539816339744831), around(k * 0.69314718055994531), around(k * 411.7748);
  for (int e = -126; e < 128; e += 3) around(ldexp(1, e));
  for (int i = 0; i + kLanes <= n; i += kLanes) block(list + i);
  printf("| %s | %.3f | %a |\n", row.name, worst, double(at));
  CHECK(worst <= row.limit, "%s: %.3f ULP at %a (%.9g), limit %.2f", row.name, worst, double(at), double(at), row.limit);
}

void check_special() {
  const float inf = INFINITY, nan = NAN;
  struct { const char *name; V (*function)(V); float x, want; } exact[] = {
#define EXACT(f, x, want) {#f, [](V v) { return f(v); }, x, want},
      EXACT(exp, -inf, 0) EXACT(exp, inf, inf) EXACT(exp, 0, 1) EXACT(exp, -0.0f, 1) EXACT(exp, 1000, inf) EXACT(exp, -1000, 0) EXACT(exp2, 10, 1024) EXACT(exp2, -149, 1.40129846e-45f) EXACT(exp2, 128, inf)
      EXACT(expm1, -inf, -1) EXACT(expm1, inf, inf) EXACT(expm1, -0.0f, -0.0f) EXACT(expm1, 1e-40f, 1e-40f)
      EXACT(log, 0, -inf) EXACT(log, -0.0f, -inf) EXACT(log, -1, nan) EXACT(log, -inf, nan) EXACT(log, inf, inf) EXACT(log, 1, 0) EXACT(log2, 1024, 10) EXACT(log2, 1.40129846e-45f, -149) EXACT(log10, 0, -inf) EXACT(log10, 1, 0)
      EXACT(log1p, -1, -inf) EXACT(log1p, -0.0f, -0.0f) EXACT(log1p, -2, nan) EXACT(log1p, inf, inf) EXACT(log1p, 1e-40f, 1e-40f)
      EXACT(tanh, inf, 1) EXACT(tanh, -inf, -1) EXACT(tanh, -0.0f, -0.0f) EXACT(tanh, 1e-40f, 1e-40f) EXACT(sigmoid, inf, 1) EXACT(sigmoid, -inf, 0) EXACT(sigmoid, 0, 0.5f)
      EXACT(erf, inf, 1) EXACT(erf, -inf, -1) EXACT(erf, -0.0f, -0.0f) EXACT(erfc, inf, 0) EXACT(erfc, -inf, 2)
      EXACT(sin, inf, nan) EXACT(sin, -0.0f, -0.0f) EXACT(cos, -inf, nan) EXACT(cos, 0, 1) EXACT(sin, 1e-40f, 1e-40f)
      EXACT(gelu_erf, inf, inf) EXACT(gelu_erf, -inf, nan) EXACT(gelu_erf, -0.0f, -0.0f) EXACT(gelu_erf, 0, 0) EXACT(gelu_erf, -1e30f, -0.0f) EXACT(gelu_erf, 1e30f, 1e30f)
      EXACT(gelu_tanh, inf, inf) EXACT(gelu_tanh, -inf, nan) EXACT(gelu_tanh, -0.0f, -0.0f) EXACT(gelu_tanh, -1e30f, -0.0f) EXACT(gelu_tanh, 3e38f, 3e38f)
      EXACT(silu, inf, inf) EXACT(silu, -inf, nan) EXACT(silu, -0.0f, -0.0f) EXACT(silu, 3e38f, 3e38f) EXACT(rsqrt, 0, inf) EXACT(rsqrt, -0.0f, -inf) EXACT(rsqrt, inf, 0) EXACT(rsqrt, 4, 0.5f)
      EXACT(sqrt, -1, nan) EXACT(sqrt, -0.0f, -0.0f) EXACT(round, -0.4f, -0.0f) EXACT(round, 2.5f, 2) EXACT(ceil, -0.4f, -0.0f) EXACT(floor, -0.0f, -0.0f) EXACT(trunc, -0.9f, -0.0f)
  };
  for (auto &e : exact) {
    float got = lane0(e.function(splat(e.x)));
    CHECK(same(got, e.want), "%s(%g) = %g, not %g", e.name, e.x, got, e.want);
  }
  for (const Row &row : kRows) CHECK(lane0(row.function(splat(nan))) != lane0(row.function(splat(nan))), "%s(NaN)", row.name);
  for (float x : {-inf, -2.5f, -1.0f, -0.0f, 0.0f, 0.5f, 1.0f, 3.0f, inf, nan}) {
    for (float y : {-inf, -3.0f, -0.5f, -0.0f, 0.0f, 1.0f, 2.0f, inf, nan}) {
      CHECK(ulp_error(lane0(pow(splat(x), splat(y))), ::pow(double(x), double(y))) <= 0.6, "pow(%g, %g)", x, y);
      CHECK(ulp_error(lane0(atan2(splat(x), splat(y))), ::atan2(double(x), double(y))) <= 0.51, "atan2(%g, %g)", x, y);
    }
  }
}

// The same input in any lane, among any neighbours, loaded whole or in part, gives the same bits.
void check_lanes_alone() {
  float values[kHostileMax + 64];
  int n = hostile(values);
  for (int i = 0; i < 64; ++i) values[n++] = (i - 32) * 0.37f * (i % 5 ? 1 : 3000);
  for (const Row &row : kRows) {
    for (int i = 0; i < n; ++i) {
      float alone = lane0(row.function(splat(values[i])));
      for (int at = 0; at < kLanes; ++at) {
        float x[kLanes], out[kLanes] = {}, part[kLanes] = {};
        for (int k = 0; k < kLanes; ++k) x[k] = values[(i + k - at + n) % n];
        store(out, row.function(load(x)));
        store_partial(part, row.function(load_partial(x, at)), at);
        CHECK(same(out[at], alone), "%s(%g) in lane %d is %a, alone %a", row.name, values[i], at, out[at], alone);
        for (int k = 0; k < at; ++k) CHECK(same(part[k], out[k]), "%s(%g) in lane %d of %d", row.name, x[k], k, at);
      }
    }
  }
}

// Vec<double> is libm lane by lane, so only the plumbing and the bound versions of the symbols are in question.
void check_double() {
  struct { const char *name; D (*function)(D); long double (*reference)(long double); } rows[] = {
#define DROW(f) {#f, [](D v) { return f(v); }, [](long double x) -> long double { return f##l(x); }},
      DROW(exp) DROW(exp2) DROW(expm1) DROW(log) DROW(log2) DROW(log10) DROW(log1p) DROW(tanh) DROW(erf) DROW(erfc) DROW(sin) DROW(cos) DROW(tan) DROW(asin)
      DROW(acos) DROW(atan) DROW(sinh) DROW(cosh) DROW(asinh) DROW(acosh) DROW(atanh) DROW(sqrt) DROW(floor) DROW(ceil) DROW(trunc)
  };
  double v[kHostileMax + 64], out[kLanes];
  int n = hostile(v);
  for (int i = 0; i < 64; ++i) v[n++] = (i - 32) * 0.37 * (i % 5 ? 1 : 30);
  for (auto &row : rows) {
    for (int i = 0; i + kLanes <= n; ++i) {
      store(out, row.function(load(v + i)));
      for (int k = 0; k < kLanes; ++k) {
        double want = double(row.reference(v[i + k]));
        CHECK(same(out[k], want) || (want == want && !isinf(want) && fabs(out[k] - want) <= 4e-16 * fabs(want) + 1e-323), "%s(%.17g) = %.17g, not %.17g", row.name, v[i + k], out[k], want);
      }
    }
  }
  for (double x : {0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e300, -1e300, 1e-300, double(INFINITY), double(-INFINITY), double(NAN)}) {
    for (double y : {0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -3.0, 1000.5, -1000.5, double(INFINITY), double(-INFINITY), double(NAN)}) {
      double got = lane0(pow(splat(x), splat(y))), want = double(powl(x, y));
      CHECK(same(got, want) || fabs(got - want) <= 3e-16 * fabs(want), "pow(%g, %g) = %.17g, not %.17g", x, y, got, want);
      CHECK(same(lane0(atan2(splat(x), splat(y))), ::atan2(x, y)), "atan2(%g, %g)", x, y);
    }
    CHECK(same(lane0(sigmoid(splat(x))), sigmoid_d(x)) || x == -1e300 || fabs(lane0(sigmoid(splat(x))) - sigmoid_d(x)) < 1e-16, "sigmoid(%g)", x);
    CHECK(same(lane0(gelu_erf(splat(x))), gelu_erf_d(x)) || fabs(lane0(gelu_erf(splat(x))) - gelu_erf_d(x)) < 1e-15, "gelu_erf(%g) = %g", x, lane0(gelu_erf(splat(x))));
    CHECK(same(lane0(gelu_tanh(splat(x))), gelu_tanh_d(x)) || fabs(lane0(gelu_tanh(splat(x))) - gelu_tanh_d(x)) < 1e-15, "gelu_tanh(%g)", x);
    CHECK(same(lane0(silu(splat(x))), silu_d(x)), "silu(%g)", x);
  }
}

template <class F> void bench_one(const char *name, F f) {
  static float x[4096], y[4096];
  for (int i = 0; i < 4096; ++i) x[i] = float(i % 997) * 0.008f - 3.5f + (i % 2 ? 0.001f : 0);
  double best_cycles = 1e9, best_ns = 1e9;
  for (int repeat = 0; repeat < 200; ++repeat) {
    timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    uint64_t c0 = __rdtsc();
    for (int i = 0; i < 4096; i += kLanes) store(y + i, f(load(x + i)));
    uint64_t c1 = __rdtsc();
    clock_gettime(CLOCK_MONOTONIC, &t1);
    const double vectors = 4096.0 / kLanes;
    best_cycles = fmin(best_cycles, double(c1 - c0) / vectors);
    best_ns = fmin(best_ns, ((t1.tv_sec - t0.tv_sec) * 1e9 + double(t1.tv_nsec - t0.tv_nsec)) / vectors);
  }
  printf("| %s | %.1f | %.1f |\n", name, best_cycles, best_ns);
}
void bench() {
#define BENCH(f) bench_one(#f, [](V v) __attribute__((always_inline)) { return f(v); });
  BENCH(exp) BENCH(exp2) BENCH(expm1) BENCH(log) BENCH(log2) BENCH(log10) BENCH(log1p) BENCH(tanh) BENCH(sigmoid) BENCH(silu) BENCH(erf) BENCH(sin) BENCH(cos) BENCH(gelu_erf) BENCH(gelu_tanh) BENCH(erfc) BENCH(tan) BENCH(rsqrt)
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "bench") == 0) {
    bench();
    return 0;
  }
  for (const Row &row : kRows) sweep(row, argc > 1 ? strtoull(argv[1], nullptr, 10) : 2999);
  check_special();
  check_lanes_alone();
  check_double();
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
