// One small kernel for each function, so that an object has them all: what nm and readelf say about it is the test.
#include "simd/simd.h"

using namespace SEALIFT_NS;

namespace {

template <class T> void all_ops(T *p, int64_t n) {
  Vec<T> a = load(p), b = load_partial(p + 100, n), c = load_strided(p, n), d = load_strided_partial(p, 3, n);
  Vec<T> r = add(a, sub(b, mul(c, d)));
  r = minimum(maximum(r, abs(a)), neg(b));
  r = fmod(remainder(floor_div(trunc_div(r, a), b), c), d);
  Mask m = logical_and(logical_or(eq(a, b), lt(a, c)), logical_xor(logical_not(ge(c, d)), ne(a, d)));
  r = select(m, r, gather(p, iota<int64_t>(n))) + gather_partial(p, cast<int64_t>(r), n) + splat_load(p) + iota<T>(T(n));
  p[7] = reduce_add(r) + reduce_mul(r) + reduce_min(r) + reduce_max(r);
  r = r + cast<T>(cast<float>(r)) + cast<T>(cast<double>(r)) + cast<T>(cast<int8_t>(r)) + cast<T>(cast<uint8_t>(r));
  r = r + cast<T>(cast<int16_t>(r)) + cast<T>(cast<int32_t>(r)) + cast<T>(cast<int64_t>(r)) + cast<T>(cast<bool>(r));
  if (any(m) && !all(m) && any_partial(m, 3)) store(p, r);
  store_partial(p, r, n);
  store_strided(p, n, r);
  store_strided_partial(p, 2, r, n);
  p[3] = lane0(r);
}
template <class T> void integer_ops(T *p) {
  Vec<T> a = load(p), b = load(p + 64);
  store(p, bit_and(bit_or(bit_xor(a, b), shl(a, b)), bit_not(shr(a, b))));
  p[0] = reduce_and(a) | reduce_or(b);
}
template <class T> void float_ops(T *p) {
  Vec<T> x = load(p), y = load(p + 64);
#define ONE(f) store(p += kLanes, f(x));
  ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(tanh) ONE(sigmoid) ONE(silu) ONE(erf) ONE(erfc) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos)
  ONE(atan) ONE(sinh) ONE(cosh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(sqrt) ONE(rsqrt) ONE(floor) ONE(ceil) ONE(trunc) ONE(round) ONE(gelu_erf) ONE(gelu_tanh)
  store(p, fma(pow(x, y), atan2(x, y), div(x, y)));
  store(p, copysign(select(isnan(x), x, y), x));
}

}  // namespace

extern "C" {
void simd_float(float *p, int64_t n) { all_ops(p, n); float_ops(p); }
void simd_double(double *p, int64_t n) { all_ops(p, n); float_ops(p); }
void simd_int8(int8_t *p, int64_t n) { all_ops(p, n); integer_ops(p); }
void simd_uint8(uint8_t *p, int64_t n) { all_ops(p, n); integer_ops(p); }
void simd_int16(int16_t *p, int64_t n) { all_ops(p, n); integer_ops(p); }
void simd_int32(int32_t *p, int64_t n) { all_ops(p, n); integer_ops(p); }
void simd_int64(int64_t *p, int64_t n) { all_ops(p, n); integer_ops(p); }
void simd_storage(bf16 *p, f16 *q, b8 *m, int64_t n) {
  store(p, load(q));
  store(q, load_partial(p, n));
  store_partial(m, load(m), n);
  store_partial(p, round_to_bf16(round_to_f16(load_strided(q, n))), n);
  store_partial(q, select(load_strided(m, 2), gather(p, iota<int64_t>(0)), splat_load(p)), n);
}
}
