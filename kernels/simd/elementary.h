// Elementary functions on vectors. ACCURACY.md has the largest errors found; coefficients come from fit.py.
//
// For Vec<float>: the functions that models spend time in are polynomials here, with at most 2 ULP of error (gelu and silu: ACCURACY.md) over the whole
// range, subnormals included; the others go lane by lane through libm's double functions, so they are correctly rounded
// but for rare ties. For Vec<double>: libm lane by lane. sqrt, floor, ceil, trunc and round are in arithmetic.h.
//
// NaN gives NaN, infinities and the sign of zero are right. A lane's result depends on nothing but its input.
// Argument reduction by a constant in two parts (Cody and Waite 1980) and reconstruction follow the usual schemes, e.g.
// J.-M. Muller, Elementary Functions, 3rd ed., ch. 11.
#pragma once

#include "arithmetic.h"

namespace SEALIFT_NS {
namespace {

typedef Vec<float> Floats;
typedef Vec<int32_t> Ints;

// ---------------------------------------------------------------------------------------------------------------------
// Helpers

SEALIFT_INLINE Floats constant(float x) { return splat<float>(x); }

// c0 + c1 x + c2 x^2 + ...
SEALIFT_INLINE Floats polynomial(Floats, float c) { return constant(c); }
template <class... C> SEALIFT_INLINE Floats polynomial(Floats x, float c0, C... rest) { return fma(x, polynomial(x, rest...), constant(c0)); }

// Clamped, and NaN kept: MINPS and MAXPS return the second operand if either is NaN.
SEALIFT_INLINE Floats at_most(Floats x, float limit) {
  Floats r, l = constant(limit);
  SEALIFT_EACH_PART(Floats::kParts, r.part[i] = min_part(l.part[i], x.part[i]));
  return r;
}
SEALIFT_INLINE Floats at_least(Floats x, float limit) {
  Floats r, l = constant(limit);
  SEALIFT_EACH_PART(Floats::kParts, r.part[i] = max_part(l.part[i], x.part[i]));
  return r;
}

SEALIFT_INLINE Floats minus_abs(Floats x) { return x | sign_mask<float>(); }

// a*b - product exactly, for product = a*b rounded; small enough not to matter where it underflows.
SEALIFT_INLINE Floats product_error(Floats a, Floats b, Floats product) {
#if SEALIFT_TARGET_ISA >= 1
  return fma(a, b, neg(product));
#else   // Dekker 1971: factors of 12 bits have exact products
  const Floats top = bitcast<float>(splat<int32_t>(int32_t(0xFFFFF000)));
  Floats ah = a & top, al = a - ah, bh = b & top, bl = b - bh;
  return ((ah * bh - product) + (ah * bl + al * bh)) + al * bl;
#endif
}

// x rounded to the nearest integer for |x| < 2^22, as a float and as an int.
struct Nearest { Floats value; Ints index; };
SEALIFT_INLINE Nearest nearest_product(Floats x, float factor) {
  const Floats magic = constant(12582912.0f);   // 1.5 * 2^23: its last bit is 1
  Floats t = fma(x, constant(factor), magic);
  return {t - magic, bitcast<int32_t>(t) - bitcast<int32_t>(magic)};
}

SEALIFT_INLINE Floats pow2(Ints n) { return bitcast<float>(shift_left(n + splat<int32_t>(127), 23)); }   // -127 < n < 128

// x * 2^n, rounded once also where the result is subnormal; -252 < n < 256.
SEALIFT_INLINE Floats scale_pow2(Floats x, Nearest n) {
#if SEALIFT_TARGET_ISA == 2
  Floats r;
  r.part[0] = __builtin_ia32_scalefps512_mask(x.part[0], n.value.part[0], x.part[0], (uint16_t)-1, 4);
  return r;
#else
  Ints half = shift_right(n.index, 1);
  return x * pow2(half) * pow2(n.index - half);
#endif
}

// ln 2 in two parts. The first has 9 bits, so its product with an exponent is exact without FMA too.
constexpr float kLog2E = 1.44269504f, kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;

// e^x = p * 2^n, with r = x - n ln 2 and |r| <= 0.3475; p has about 0.9 ULP of error.
struct ExpParts { Floats p; Nearest n; };
SEALIFT_INLINE Floats exp_q(Floats r) { return polynomial(r, 0.49999994f, 0.166665211f, 0.0416682921f, 0.00836871564f, 0.00138186978f); }
SEALIFT_INLINE Floats exp_polynomial(Floats r) { return fma(r * r, exp_q(r), r) + constant(1.0f); }   // e^r
SEALIFT_INLINE ExpParts exp_parts(Floats x) {
  Nearest n = nearest_product(x, kLog2E);
  Floats r = fma(n.value, constant(-kLn2Hi), x);
  return {exp_polynomial(fma(n.value, constant(-kLn2Lo), r)), n};
}
// With the rounding error of r kept: p has about 0.7 ULP of error. hi is x - n kLn2Hi, exact but for what is added to it.
SEALIFT_INLINE ExpParts exp_parts_compensated(Nearest n, Floats hi) {
  Floats r = fma(n.value, constant(-kLn2Lo), hi);
  Floats r_low = fma(n.value, constant(-kLn2Lo), hi - r);
  return {constant(1.0f) + (r + fma(r * r, exp_q(r), r_low)), n};
}
SEALIFT_INLINE ExpParts exp_parts_accurate(Floats x) {
  Nearest n = nearest_product(x, kLog2E);
  return exp_parts_compensated(n, fma(n.value, constant(-kLn2Hi), x));
}
SEALIFT_INLINE ExpParts exp_parts_accurate(Floats x, Floats x_low) {   // of x + x_low
  Nearest n = nearest_product(x, kLog2E);
  return exp_parts_compensated(n, fma(n.value, constant(-kLn2Hi), x) + x_low);
}
SEALIFT_INLINE Floats exp_normal(Floats x) {   // where the result is normal: -87 < x < 88
  ExpParts e = exp_parts(x);
  return e.p * pow2(e.n.index);
}

// ---------------------------------------------------------------------------------------------------------------------
// Exponentials

SEALIFT_INLINE Floats exp(Floats x) {
  ExpParts e = exp_parts(at_least(at_most(x, 89.0f), -104.0f));   // e^89 overflows, e^-104 is less than half a subnormal
  return scale_pow2(e.p, e.n);
}

SEALIFT_INLINE Floats exp2(Floats x) {
  Floats y = at_least(at_most(x, 129.0f), -151.0f);
  Nearest n = nearest_product(y, 1.0f);
  return scale_pow2(exp_polynomial((y - n.value) * constant(0.693147181f)), n);
}

// With e^x - 1 = (2^n - 1) + 2^n r + 2^n (e^r - 1 - r): the first two are summed with their error kept, in halves so that
// 2^n does not overflow.
SEALIFT_INLINE Floats expm1(Floats x) {
  Floats y = at_least(at_most(x, 89.0f), -30.0f);
  Nearest n = nearest_product(y, kLog2E);
  Floats hi = fma(n.value, constant(-kLn2Hi), y);
  Floats r = fma(n.value, constant(-kLn2Lo), hi);
  Floats r_low = fma(n.value, constant(-kLn2Lo), hi - r);
  Floats q = polynomial(r, 0.5f, 0.166666672f, 0.0416664891f, 0.00833320804f, 0.00139327231f, 0.000199442715f);
  Floats rest = fma(r * r, q, r_low);
  Floats half = pow2(n.index - splat<int32_t>(1));
  Floats a = half - constant(0.5f), b = half * r, sum = a + b, error = b - (sum - a);
  Floats s = sum + fma(half, rest, error);
  return select(abs(x) < constant(2.9802322e-8f), x, s + s);   // 2^-25
}

// ---------------------------------------------------------------------------------------------------------------------
// Logarithms

// x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for positive normal x.
struct LogParts { Floats e, f; };
SEALIFT_INLINE LogParts log_parts(Floats x) {
  Ints u = bitcast<int32_t>(x) - splat<int32_t>(0x3F3504F3);   // sqrt(1/2)
  Ints m = (u & splat<int32_t>(0x007FFFFF)) + splat<int32_t>(0x3F3504F3);
  return {cast<float>(shift_right(u, 23)), bitcast<float>(m) - constant(1.0f)};
}
SEALIFT_INLINE LogParts log_parts_subnormal(Floats x) {   // for positive x
  Mask tiny = x < constant(1.17549435e-38f);
  LogParts r = log_parts(select(tiny, x * constant(8388608.0f), x));
  r.e = r.e - select(tiny, constant(23.0f), Floats{});
  return r;
}
// log(1 + f) - f
SEALIFT_INLINE Floats log_rest(Floats f) {
  Floats s = f * f;
  Floats p = polynomial(f, 0.333333105f, -0.249999866f, 0.20002225f, -0.16669254f, 0.142186701f, -0.123842463f, 0.118728898f, -0.117906652f, 0.0691660047f);
  return fma(f * s, p, constant(-0.5f) * s);
}
// The logarithm r of x, or what belongs there when x is zero, negative, infinite or NaN.
SEALIFT_INLINE Floats log_special(Floats x, Floats r) {
  const Floats inf = constant(__builtin_inff());
  r = select(x < inf, r, x);
  return select(x > Floats{}, r, select(eq(x, Floats{}), neg(inf), constant(__builtin_nanf(""))));
}

SEALIFT_INLINE Floats log(Floats x) {
  LogParts l = log_parts_subnormal(x);
  Floats rest = fma(l.e, constant(kLn2Lo), log_rest(l.f));
  return log_special(x, fma(l.e, constant(kLn2Hi), l.f + rest));
}

SEALIFT_INLINE Floats log2(Floats x) {
  LogParts l = log_parts_subnormal(x);
  Floats rest = fma(l.f, constant(1.92596299e-8f), log_rest(l.f) * constant(kLog2E));   // log2(e) = kLog2E + 1.9e-8
  return log_special(x, l.e + fma(l.f, constant(kLog2E), rest));
}

SEALIFT_INLINE Floats log10(Floats x) {
  const float log10e = 0.434294492f, log10e_low = -1.01033630e-8f;
  const float log10of2 = 0.301025390625f, log10of2_low = 4.60503908e-6f;   // 11 bits, so products with e are exact
  LogParts l = log_parts_subnormal(x);
  Floats rest = fma(l.f, constant(log10e_low), log_rest(l.f) * constant(log10e));
  rest = fma(l.e, constant(log10of2_low), rest);
  return log_special(x, fma(l.e, constant(log10of2), fma(l.f, constant(log10e), rest)));
}

// 1 + x = 2^e (1 + f) with f = (x 2^-e) + (2^-e - 1), which has one rounding and is x itself for e = 0. From 2^24 on
// the 1 does not matter, and 2^-e might underflow.
SEALIFT_INLINE Floats log1p(Floats x) {
  Floats u = x + constant(1.0f);
  LogParts l = log_parts(u);
  Floats s = pow2(neg(truncate32(at_most(l.e, 64.0f))));
  Floats f = select(x < constant(16777216.0f), fma(x, s, s - constant(1.0f)), l.f);
  Floats rest = fma(l.e, constant(kLn2Lo), log_rest(f));
  Floats r = log_special(u, fma(l.e, constant(kLn2Hi), f + rest));
  return select(abs(x) < constant(2.9802322e-8f), x, r);
}

// ---------------------------------------------------------------------------------------------------------------------
// Activations

SEALIFT_INLINE Floats tanh(Floats x) {
  Floats a = abs(x), s = x * x;
  Floats small = fma(x * s, polynomial(s, -0.333333313f, 0.133332178f, -0.053947553f, 0.0217024535f, -0.00817705877f, 0.00213934225f), x);
  Floats z = exp_normal(at_most(a + a, 20.0f));   // tanh(10) rounds to 1
  Floats large = constant(1.0f) - constant(2.0f) / (z + constant(1.0f));
  return copysign(select(a < constant(0.625f), small, large), x);   // also where small is zero
}

// x / (1 + z) for 0 <= z <= 1, corrected for the rounding of 1 + z: by 1 / (1 + z) ~ 1 - z/2 that rounding, which is near
// enough for a correction of half an ULP.
SEALIFT_INLINE Floats over_one_plus(Floats x, Floats z) {
  Floats d = z + constant(1.0f), q = x / d;
  Floats d_low = z - (d - constant(1.0f));
  return fma(q, d_low * fma(z, constant(0.5f), constant(-1.0f)), q);
}

// 1 / (1 + e^-x), without overflow for x < 0: there it is e^x / (1 + e^x).
SEALIFT_INLINE Floats sigmoid(Floats x) {
  ExpParts e = exp_parts_accurate(at_least(minus_abs(x), -104.0f));
  Floats z = scale_pow2(e.p, e.n);
  return over_one_plus(select(x < Floats{}, z, constant(1.0f)), z);
}

// x * sigmoid(y), given e^-|y| as parts, and zero for x < last. For x < 0 the numerator x e^-|y| is scaled last: e^-|y|
// alone may be subnormal, with few bits left. -inf gives NaN, which is what eager's formulas give.
SEALIFT_INLINE Floats times_sigmoid(Floats x, ExpParts e, float last) {
  Floats z = scale_pow2(e.p, e.n);
  Floats tail = select(x < constant(last), x * Floats{}, scale_pow2(x * e.p, e.n));
  Floats r = over_one_plus(select(x < Floats{}, tail, x), z);
  r = r | (x & sign_mask<float>());                       // the correction makes -0.0 of the tail +0.0
  return select(x < constant(__builtin_inff()), r, x);   // and NaN of infinity
}
SEALIFT_INLINE Floats silu(Floats x) { return times_sigmoid(x, exp_parts(at_least(minus_abs(x), -120.0f)), -119.0f); }

SEALIFT_INLINE Floats erf(Floats x) {
  Floats a = abs(x), s = x * x;
  Floats small = fma(x, polynomial(s, 0.128379166f, -0.376126289f, 0.112836242f, -0.02685556f, 0.00519175315f, -0.000803975272f, 7.94310035e-05f), x);
  Floats z = at_most(a, 4.0f) - constant(1.0f);   // erf(4) rounds to 1
  Floats p = polynomial(z, -1.84960556f, -2.63896775f, -0.843099058f, -0.041559983f, 0.0098828217f, -0.00163250405f, -1.81016476e-05f, 6.04410634e-05f);
  Floats large = constant(1.0f) - exp_normal(p);
  return select(a < constant(0.9f), small, copysign(large, x));
}

// erfc(t) e^(t^2), given t + 2; 0 <= t <= 10.2. About 4 ULP, most of it from the rounding of t + 2 and u.
SEALIFT_INLINE Floats erfcx_shifted(Floats t_plus_2) {
  Floats u = constant(1.0f) / t_plus_2;
  return u * polynomial(u - constant(0.29f), 1.13881743f, 3.11607504f, 4.6948204f, 1.36249304f, -6.50387239f, -3.31731558f, 14.3386078f, 1.49681723f, -30.5768738f, 12.1868219f);
}

// x/2 (1 + erf(x / sqrt 2)), written max(x, 0) - |x|/2 erfc(|x| / sqrt 2) so that nothing cancels for x < 0. As in eager,
// -inf gives NaN.
SEALIFT_INLINE Floats gelu_erf(Floats x) {
  Floats a = at_most(abs(x), 14.5f);   // beyond, the second term is less than half a subnormal
  Floats minus_half = a * constant(-0.5f), y = a * minus_half;   // -x^2/2
  ExpParts e = exp_parts_accurate(y, product_error(a, minus_half, y));
  Floats erfcx = erfcx_shifted(fma(a, constant(0.707106781f), constant(2.0f)));
  Floats first = select(x < Floats{}, x * Floats{}, x);   // x * 0 is -0.0, or NaN for -inf
  return first + scale_pow2(e.p * (erfcx * minus_half), e.n);
}

// x/2 (1 + tanh(y/2)) = x / (1 + e^-y), y = 2 sqrt(2/pi) (x + 0.044715 x^3). -|y| is computed with its rounding error: at
// y = -80 that error would be 40 ULP in the result.
SEALIFT_INLINE Floats gelu_tanh(Floats x) {
  const float c1 = -1.59576917f, c1_low = 4.53406807e-8f, c3 = -0.0713548139f, c3_low = -2.3988324e-9f;
  Floats a = at_most(abs(x), 12.0f), s = a * a;
  Floats v = constant(c3) * s;
  Floats v_low = product_error(constant(c3), s, v) + fma(constant(c3), product_error(a, a, s), constant(c3_low) * s);
  Floats w = constant(c1) + v, w1 = w - v;
  Floats w_low = (constant(c1) - w1) + (v - (w - w1)) + (constant(c1_low) + v_low);
  Floats y = a * w;
  Floats y_low = fma(a, w_low, product_error(a, w, y));
  return times_sigmoid(x, exp_parts_accurate(y, y_low), -11.5f);
}

// ---------------------------------------------------------------------------------------------------------------------
// Sine and cosine

// x = n pi/2 + r + r_low with |r| <= 0.786, for |x| <= 65536.
constexpr float kTrigLimit = 65536.0f;
struct TrigParts { Ints n; Floats r, r_low; };
SEALIFT_INLINE TrigParts trig_parts(Floats x) {
  Nearest n = nearest_product(x, 0.636619772f);
#if SEALIFT_TARGET_ISA >= 1   // pi/2 in three parts of 24 bits; the first difference is exact
  Floats hi = fma(n.value, constant(-1.57079637f), x);
  Floats r = fma(n.value, constant(4.37113883e-8f), hi);
  // The rounding error of r, where hi - r is exact: not after cancellation, but there r is all but exact itself.
  Floats r_low = select(abs(r) >= constant(0.0625f), fma(n.value, constant(4.37113883e-8f), hi - r), Floats{});
  return {n.index, r, fma(n.value, constant(1.71512489e-15f), r_low)};
#else   // in double, pi/2 in two parts, the first of 33 bits
  Vec<double> m = cast<double>(n.value);
  Vec<double> d = (cast<double>(x) - m * splat(1.5707963267341256)) - m * splat(6.077100506506192e-11);
  Floats r = cast<float>(d);
  return {n.index, r, cast<float>(d - cast<double>(r))};
#endif
}
// sin(n pi/2 + r)
SEALIFT_INLINE Floats sin_quadrant(Ints n, Floats r, Floats r_low) {
  Floats s = r * r;
  Floats sine = r + fma(r * s, polynomial(s, -0.166666672f, 0.00833338033f, -0.000198534763f, 2.83680311e-06f), r_low);
  Floats c = fma(s * s, polynomial(s, 0.0416666456f, -0.00138873013f, 2.44306684e-05f), neg(r * r_low));
  Floats cosine = fma(constant(-0.5f), s, constant(1.0f)) + c;
  Mask odd = ne(n & splat<int32_t>(1), Ints{});
  Ints sign = shift_left(n & splat<int32_t>(2), 30);
  return select(odd, cosine, sine) ^ bitcast<float>(sign);
}
template <float function(float)> __attribute__((noinline, cold)) Floats replace_lanes(Mask m, const Floats &x, const Floats &r) {
  float in[kLanes], out[kLanes];
  store(in, x);
  store(out, r);
  for (int i = 0; i < kLanes; ++i) if (mask_bits(m) >> i & 1) out[i] = function(in[i]);
  return load(out);
}
SEALIFT_INLINE float sin_lane(float x) { return __builtin_sinf(x); }
SEALIFT_INLINE float cos_lane(float x) { return __builtin_cosf(x); }

SEALIFT_INLINE Floats sin(Floats x) {
  TrigParts t = trig_parts(x);
  Floats a = abs(x), r = select(a < constant(2e-4f), x, sin_quadrant(t.n, t.r, t.r_low));
  Mask in_range = a <= constant(kTrigLimit);
  return __builtin_expect(all(in_range), 1) ? r : replace_lanes<sin_lane>(~in_range, x, r);
}
SEALIFT_INLINE Floats cos(Floats x) {
  TrigParts t = trig_parts(x);
  Floats r = sin_quadrant(t.n + splat<int32_t>(1), t.r, t.r_low);
  Mask in_range = abs(x) <= constant(kTrigLimit);
  return __builtin_expect(all(in_range), 1) ? r : replace_lanes<cos_lane>(~in_range, x, r);
}

// ---------------------------------------------------------------------------------------------------------------------
// Through libm

// One call site in a loop, not kLanes of them: these are rare, and code size is not.
#define SEALIFT_LANES1_(T, name, call) \
  SEALIFT_INLINE Vec<T> name(Vec<T> a) { \
    T v[kLanes]; \
    store(v, a); \
    _Pragma("GCC unroll 1") for (int i = 0; i < kLanes; ++i) { const T x = v[i]; v[i] = T(call); } \
    return load(v); \
  }
#define SEALIFT_LANES2_(T, name, call) \
  SEALIFT_INLINE Vec<T> name(Vec<T> a, Vec<T> b) { \
    T v[kLanes], w[kLanes]; \
    store(v, a); \
    store(w, b); \
    _Pragma("GCC unroll 1") for (int i = 0; i < kLanes; ++i) { const T x = v[i], y = w[i]; v[i] = T(call); } \
    return load(v); \
  }
#define SEALIFT_BOTH1_(name) SEALIFT_LANES1_(float, name, __builtin_##name(double(x))) SEALIFT_LANES1_(double, name, __builtin_##name(x))
SEALIFT_BOTH1_(tan)
SEALIFT_BOTH1_(asin)
SEALIFT_BOTH1_(acos)
SEALIFT_BOTH1_(atan)
SEALIFT_BOTH1_(sinh)
SEALIFT_BOTH1_(cosh)
SEALIFT_BOTH1_(asinh)
SEALIFT_BOTH1_(acosh)
SEALIFT_BOTH1_(atanh)
SEALIFT_BOTH1_(erfc)
SEALIFT_LANES2_(float, atan2, __builtin_atan2(double(x), double(y)))
SEALIFT_LANES2_(double, atan2, __builtin_atan2(x, y))
SEALIFT_LANES2_(float, pow, __builtin_powf(x, y))   // glibc computes powf in double
SEALIFT_LANES2_(double, pow, __builtin_pow(x, y))
SEALIFT_LANES1_(double, exp, __builtin_exp(x))
SEALIFT_LANES1_(double, exp2, __builtin_exp2(x))
SEALIFT_LANES1_(double, expm1, __builtin_expm1(x))
SEALIFT_LANES1_(double, log, __builtin_log(x))
SEALIFT_LANES1_(double, log2, __builtin_log2(x))
SEALIFT_LANES1_(double, log10, __builtin_log10(x))
SEALIFT_LANES1_(double, log1p, __builtin_log1p(x))
SEALIFT_LANES1_(double, sin, __builtin_sin(x))
SEALIFT_LANES1_(double, cos, __builtin_cos(x))
SEALIFT_LANES1_(double, tanh, __builtin_tanh(x))
SEALIFT_LANES1_(double, erf, __builtin_erf(x))
#undef SEALIFT_BOTH1_
#undef SEALIFT_LANES2_
#undef SEALIFT_LANES1_

SEALIFT_INLINE Vec<double> sigmoid(Vec<double> x) {
  Vec<double> z = exp(neg(abs(x))), one = splat(1.0);
  return select(x < Vec<double>{}, z, one) / (z + one);
}
SEALIFT_INLINE Vec<double> silu(Vec<double> x) { return x / (exp(neg(x)) + splat(1.0)); }
SEALIFT_INLINE Vec<double> gelu_erf(Vec<double> x) { return splat(0.5) * x * erfc(x * splat(-0.70710678118654752)); }
SEALIFT_INLINE Vec<double> gelu_tanh(Vec<double> x) {   // x/2 (1 + tanh(y)) = x / (1 + e^-2y)
  Vec<double> minus_2y = splat(-1.5957691216057308) * x * (splat(1.0) + splat(0.044715) * x * x);
  return x / (splat(1.0) + exp(minus_2y));
}

// 1 / sqrt(x), both rounded, as ATen computes it.
template <class T> SEALIFT_INLINE Vec<T> rsqrt(Vec<T> x) { return splat<T>(1) / sqrt(x); }

}  // namespace
}  // namespace SEALIFT_NS
