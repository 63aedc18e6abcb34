// kernels/simd against scalar definitions: every operation on every pair of hostile values, conversions, memory, reductions.
#include "check.h"

#include <sys/mman.h>

#include <initializer_list>

using namespace SEALIFT_NS;

namespace {

template <class T> const char *type_name();
#define NAME(T) template <> const char *type_name<T>() { return #T; }
NAME(float) NAME(double) NAME(int8_t) NAME(uint8_t) NAME(int16_t) NAME(int32_t) NAME(int64_t) NAME(bool)

template <class T> constexpr bool is_float = T(0.5) != T(0);

// ---- scalar definitions -------------------------------------------------------------------------------------------

template <class T> T py_floor_div(T a, T b) {
  if constexpr (is_float<T>) {   // c10/util/generic_math.h
    if (b == 0) return a / b;
    T mod = (T)fmod(a, b), d = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) d -= 1;
    if (d == 0) return (T)copysign(T(0), a / b);
    T f = (T)::floor(d);
    return d - f > T(0.5) ? f + 1 : f;
  } else {
    __int128 x = a, y = b, q = x / y;
    if (x % y != 0 && (x % y < 0) != (y < 0)) q -= 1;
    return T(q);
  }
}
template <class T> T py_remainder(T a, T b) {
  if constexpr (is_float<T>) {
    T mod = (T)fmod(a, b);
    return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
  } else {
    __int128 x = a, y = b, r = x % y;
    if (r != 0 && (r < 0) != (y < 0)) r += y;
    return T(r);
  }
}
template <class T> T aten_shl(T a, T b) { return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T((unsigned __int128)a << (int)b); }
template <class T> T aten_shr(T a, T b) {
  const int last = 8 * sizeof(T) - Limits<T>::is_signed;
  return b < 0 || b >= T(last) ? T((__int128)a >> last) : T(a >> b);
}
template <class T> T torch_min(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }
template <class T> T torch_max(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }

template <class To, class From> To scalar_cast(From x) {
  if constexpr (is_same<To, bool>) return x != 0;
  else if constexpr (is_same<From, bool> || is_same<To, From> || !is_float<From> || is_float<To>) return To(x);
  else if constexpr (sizeof(To) == 8 || is_same<To, uint8_t>) return To(x >= From(-9223372036854775808.0) && x < From(9223372036854775808.0) ? int64_t(x) : INT64_MIN);
  else return To(x >= From(-2147483648.0) && x < From(2147483648.0) ? int32_t(x) : x > From(-2147483649.0) && x < 0 && sizeof(From) == 8 ? INT32_MIN : INT32_MIN);
}

// ---- operations ------------------------------------------------------------------------------------------------------

template <class T> void check_binary() {
  T v[kHostileMax];
  int n = hostile(v);
  T a[kLanes], b[kLanes], out[kLanes];
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; j += 1) {
      for (int k = 0; k < kLanes; ++k) a[k] = v[(i + k) % n], b[k] = v[(j + 2 * k) % n];
      Vec<T> x = load(a), y = load(b);
      auto each = [&](const char *name, Vec<T> got, auto want, bool zero_divides = true) {
        store(out, got);
        for (int k = 0; k < kLanes; ++k) {
          if (!zero_divides && b[k] == 0) continue;
          T w = want(a[k], b[k]);
          CHECK(same(out[k], w), "%s<%s>(%.17g, %.17g) = %.17g, not %.17g", name, type_name<T>(), double(a[k]), double(b[k]), double(out[k]), double(w));
        }
      };
      auto wrap = [](auto op) { return [op](T p, T q) { if constexpr (is_float<T>) return T(op(p, q)); else return T(op((unsigned __int128)(__int128)p, (unsigned __int128)(__int128)q)); }; };
      each("add", add(x, y), wrap([](auto p, auto q) { return p + q; }));
      each("sub", sub(x, y), wrap([](auto p, auto q) { return p - q; }));
      each("mul", mul(x, y), wrap([](auto p, auto q) { return p * q; }));
      each("floor_div", floor_div(x, y), py_floor_div<T>, is_float<T>);
      each("remainder", remainder(x, y), py_remainder<T>, is_float<T>);
      each("trunc_div", trunc_div(x, y), [](T p, T q) { if constexpr (is_float<T>) return T(::trunc(p / q)); else return T((__int128)p / q); }, is_float<T>);
      each("fmod", fmod(x, y), [](T p, T q) { if constexpr (is_float<T>) return T(::fmod(p, q)); else return T((__int128)p % q); }, is_float<T>);
      for (int k = 0; k < kLanes; ++k) {   // of zeros of both signs, either is right
        T lo = lane(minimum(x, y), k), hi = lane(maximum(x, y), k);
        CHECK(same(lo, torch_min(a[k], b[k])) || (lo == 0 && torch_min(a[k], b[k]) == 0), "minimum<%s>(%g, %g)", type_name<T>(), double(a[k]), double(b[k]));
        CHECK(same(hi, torch_max(a[k], b[k])) || (hi == 0 && torch_max(a[k], b[k]) == 0), "maximum<%s>(%g, %g)", type_name<T>(), double(a[k]), double(b[k]));
        struct { const char *name; bool got, want; } compares[] = {
            {"eq", lane(eq(x, y), k), a[k] == b[k]}, {"ne", lane(ne(x, y), k), a[k] != b[k]}, {"lt", lane(lt(x, y), k), a[k] < b[k]},
            {"le", lane(le(x, y), k), a[k] <= b[k]}, {"gt", lane(gt(x, y), k), a[k] > b[k]}, {"ge", lane(ge(x, y), k), a[k] >= b[k]}};
        for (auto &c : compares) CHECK(c.got == c.want, "%s<%s>(%g, %g)", c.name, type_name<T>(), double(a[k]), double(b[k]));
      }
      each("select", select(lt(x, y), x, y), [](T p, T q) { return p < q ? p : q; });
      each("abs", abs(x), [](T p, T) { if constexpr (is_float<T>) return T(fabs(p)); else return p < 0 ? T(0 - (unsigned __int128)p) : p; });
      each("neg", neg(x), [](T p, T) { if constexpr (is_float<T>) return -p; else return T(0 - (unsigned __int128)p); });
      if constexpr (is_float<T>) {
        each("div", div(x, y), [](T p, T q) { return p / q; });
        each("copysign", copysign(x, y), [](T p, T q) { return T(::copysign(p, q)); });
        each("sqrt", sqrt(x), [](T p, T) { return T(::sqrt(p)); });
        each("floor", floor(x), [](T p, T) { return T(::floor(p)); });
        each("ceil", ceil(x), [](T p, T) { return T(::ceil(p)); });
        each("trunc", trunc(x), [](T p, T) { return T(::trunc(p)); });
        each("round", round(x), [](T p, T) { return T(::rint(p)); });
#ifdef __FMA__
        each("fma", fma(x, y, x), [](T p, T q) { if constexpr (sizeof(T) == 4) return ::fmaf(p, q, p); else return ::fma(p, q, p); });
#else
        each("fma", fma(x, y, x), [](T p, T q) { return p * q + p; });
#endif
        for (int k = 0; k < kLanes; ++k) CHECK(lane(isnan(x), k) == (a[k] != a[k]), "isnan(%g)", double(a[k]));
      } else {
        each("bit_and", bit_and(x, y), [](T p, T q) { return T(p & q); });
        each("bit_or", bit_or(x, y), [](T p, T q) { return T(p | q); });
        each("bit_xor", bit_xor(x, y), [](T p, T q) { return T(p ^ q); });
        each("bit_not", bit_not(x), [](T p, T) { return T(~p); });
        each("shl", shl(x, y), aten_shl<T>);
        each("shr", shr(x, y), aten_shr<T>);
      }
    }
  }
}

template <class To, class From> void check_cast() {
  From v[kHostileMax];
  int n = hostile(v);
  for (int i = 0; i < n; ++i) {
    From a[kLanes];
    for (int k = 0; k < kLanes; ++k) a[k] = v[(i + k) % n];
    Vec<To> r = cast<To>(load(a));
    for (int k = 0; k < kLanes; ++k) {
      To want = scalar_cast<To>(a[k]);
      CHECK(same(lane(r, k), want), "cast<%s>(%s %.17g) = %.17g, not %.17g", type_name<To>(), type_name<From>(), double(a[k]), double(lane(r, k)), double(want));
    }
  }
  b8 m[kLanes];   // and from bool
  for (int i = 0; i < kLanes; ++i) m[i].v = uint8_t(i % 3 * 100);
  Vec<From> r = cast<From>(load(m));
  for (int k = 0; k < kLanes; ++k) CHECK(lane(r, k) == From(k % 3 != 0), "cast<%s>(bool)", type_name<From>());
}
template <class From> void check_casts() {
  check_cast<float, From>(); check_cast<double, From>(); check_cast<int8_t, From>(); check_cast<uint8_t, From>();
  check_cast<int16_t, From>(); check_cast<int32_t, From>(); check_cast<int64_t, From>(); check_cast<bool, From>();
}

// Whole numbers, so that the order of a sum does not matter, then one order that does.
template <class T> void check_reduce() {
  T v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = T(i % 2 + 1);
  T sum = 0, product = 1;
  for (int i = 0; i < kLanes; ++i) sum = T(sum + v[i]), product = T(product * v[i]);
  CHECK(reduce_add(load(v)) == sum, "%s", type_name<T>());
  CHECK(reduce_mul(load(v)) == product, "%s", type_name<T>());
  for (int at = 0; at < kLanes; ++at) {
    for (int i = 0; i < kLanes; ++i) v[i] = T(50 + i);
    v[at] = 3;
    CHECK(reduce_min(load(v)) == 3, "%s", type_name<T>());
    v[at] = 103;
    CHECK(reduce_max(load(v)) == 103, "%s", type_name<T>());
    if constexpr (is_float<T>) {
      v[at] = T(NAN);
      CHECK(reduce_min(load(v)) != reduce_min(load(v)) && reduce_max(load(v)) != reduce_max(load(v)), "%s NaN in lane %d", type_name<T>(), at);
    }
  }
  if constexpr (is_float<T>) {
    for (int i = 0; i < kLanes; ++i) v[i] = T(1) / T(i + 3);
    T tree[kLanes];
    memcpy(tree, v, sizeof v);
    for (int half = kLanes / 2; half >= 1; half /= 2) for (int i = 0; i < half; ++i) tree[i] = tree[i] + tree[i + half];
    CHECK(same(reduce_add(load(v)), tree[0]), "the documented tree of %s", type_name<T>());
  } else {
    T all = T(-1), some = 0;
    for (int i = 0; i < kLanes; ++i) v[i] = T(~T(1 << i % 7)), all = T(all & v[i]), some = T(some | v[i]);
    CHECK(reduce_and(load(v)) == all && reduce_or(load(v)) == some, "%s", type_name<T>());
  }
  for (int k = 0; k < kLanes; ++k) CHECK(lane(iota(T(5)), k) == T(5 + k), "iota<%s>", type_name<T>());
}

void check_masks() {
  for (uint32_t set = 0; set < (1u << kLanes); set += kLanes == 16 ? 7 : 1) {
    b8 m[kLanes], out[kLanes];
    for (int i = 0; i < kLanes; ++i) m[i].v = (set >> i & 1) ? 255 : 0;
    Mask v = load(m);
    CHECK(mask_bits(v) == set, "%x", set);
    CHECK(any(v) == (set != 0) && all(v) == (set == (1u << kLanes) - 1), "%x", set);
    for (int n = 0; n <= kLanes; ++n) {
      CHECK(any_partial(v, n) == ((set & ((1u << n) - 1)) != 0), "%x %d", set, n);
      CHECK(mask_bits(first_lanes(n)) == (1u << n) - 1, "%d", n);
    }
    store(out, logical_not(v));
    for (int i = 0; i < kLanes; ++i) CHECK(out[i].v == (m[i].v == 0), "a bool is stored as 0 or 1");
  }
}

// ---- bf16, f16 ---------------------------------------------------------------------------------------------------------

float f16_value(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  float magnitude = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? ldexpf(float(m), -24) : ldexpf(float(m + 1024), e - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}
uint16_t f16_nearest(float x) {
  uint32_t u = bits_as<uint32_t>(x);
  uint16_t sign = uint16_t(u >> 16 & 0x8000);
  double a = fabs(double(x));
  if (x != x) return uint16_t(sign | 0x7E00 | (u >> 13 & 0x3FF));
  if (a >= 65520) return sign | 0x7C00;
  int e = -14;
  while (e < 15 && a >= ldexp(1, e + 1)) ++e;
  int units = int(rint(ldexp(a, 10 - e)));   // half to even
  return uint16_t(sign | (((e + 14) << 10) + units));
}
uint16_t bf16_nearest(float x) {
  uint32_t u = bits_as<uint32_t>(x);
  return x != x ? 0x7FC0 : uint16_t((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
void check_half_types() {
  for (uint32_t first = 0; first < 65536; first += kLanes) {
    f16 h[kLanes], h2[kLanes];
    bf16 b[kLanes], b2[kLanes];
    for (int i = 0; i < kLanes; ++i) h[i].bits = b[i].bits = uint16_t(first + i);
    store(h2, load(h));
    store(b2, load(b));
    for (int i = 0; i < kLanes; ++i) {
      uint16_t u = h[i].bits;
      float hv = lane(load(h), i), bv = lane(load(b), i);
      CHECK(same(hv, f16_value(u)), "f16 %04x is %g", u, hv);
      CHECK(bits_as<uint32_t>(bv) == uint32_t(u) << 16, "bf16 %04x is %g", u, bv);
      if (hv == hv) CHECK(h2[i].bits == u, "f16 %04x comes back as %04x", u, h2[i].bits);
      else CHECK(h2[i].bits == (u | 0x200) && bits_as<uint32_t>(hv) == ((u & 0x8000u) << 16 | 0x7FC00000u | (u & 0x3FFu) << 13), "f16 NaN %04x is %08x, then %04x", u, bits_as<uint32_t>(hv), h2[i].bits);
      CHECK(b2[i].bits == (bv == bv ? u : 0x7FC0), "bf16 %04x comes back as %04x", u, b2[i].bits);
    }
  }
  for (uint64_t first = 0; first < 1ull << 32; first += 1021 * kLanes) {
    float x[kLanes];
    f16 h[kLanes];
    bf16 b[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      uint32_t u = uint32_t(first + 1021 * i);
      if (i % 2) u = (u & 0xFFFF0000) | 0x8000;             // half way between two bf16
      else if (i % 4 == 0) u = (u & 0xFFFFE000) | 0x1000;   // half way between two normal f16
      x[i] = bits_as<float>(u);
    }
    store(h, load(x));
    store(b, load(x));
    float rh[kLanes], rb[kLanes];
    store(rh, round_to_f16(load(x)));
    store(rb, round_to_bf16(load(x)));
    for (int i = 0; i < kLanes; ++i) {
      CHECK(h[i].bits == f16_nearest(x[i]), "f16 of %a (%08x) is %04x, not %04x", x[i], bits_as<uint32_t>(x[i]), h[i].bits, f16_nearest(x[i]));
      CHECK(b[i].bits == bf16_nearest(x[i]), "bf16 of %a is %04x", x[i], b[i].bits);
      CHECK(same(rh[i], f16_value(h[i].bits)) && same(rb[i], bits_as<float>(uint32_t(b[i].bits) << 16)), "rounding %a", x[i]);
    }
  }
  for (int i = 0; i < 1024 * 4; ++i) {   // half way between f16 subnormals, and a float to either side
    for (int step = -1; step <= 1; ++step) {
      float x = bits_as<float>(bits_as<uint32_t>(ldexpf(float(2 * i + 1), -25)) + step);
      f16 h[kLanes];
      store(h, splat(x));
      CHECK(h[kLanes - 1].bits == f16_nearest(x), "f16 of %a is %04x, not %04x", x, h[kLanes - 1].bits, f16_nearest(x));
    }
  }
}

// ---- memory ------------------------------------------------------------------------------------------------------------

// Elements that end at, or begin after, a page that may not be touched.
template <class S> void check_memory(const char *name) {
  const size_t page = 4096;
  char *map = (char *)mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(map, page, PROT_NONE);
  mprotect(map + 3 * page, page, PROT_NONE);
  char *first = map + page, *end = map + 3 * page;
  auto fill = [&] { for (char *p = first; p < end; ++p) *p = char((p - first) * 7 % 61 + 1); };
  fill();
  typedef Storage<S> St;
  typedef typename St::Raw Raw;
  auto raw = [](const S *p) { Raw r; memcpy(&r, p, sizeof r); return r; };
  auto bits = [&](Vec<typename St::Compute> v, int k) { S s[kLanes]; store(s, v); return raw(s + k); };
  auto stored = [&](const S *p) { Raw r = raw(p); return is_same<S, b8> ? Raw(r != 0) : r; };   // true is stored as 1
  for (int n = 0; n <= kLanes; ++n) {
    for (S *p : {(S *)end - n, (S *)first}) {
      Vec<typename St::Compute> v = n == kLanes ? load(p) : load_partial(p, n);
      for (int k = 0; k < kLanes; ++k) CHECK(bits(v, k) == (k < n ? stored(p + k) : Raw(0)), "load_partial<%s> %d of %d", name, k, n);
      Vec<int64_t> index = iota<int64_t>(0) * splat<int64_t>(-1) + splat<int64_t>(n - 1);
      Vec<typename St::Compute> g = n == kLanes ? gather(p, index) : gather_partial(p, index, n);
      for (int k = 0; k < n; ++k) CHECK(bits(g, k) == stored(p + n - 1 - k), "gather<%s> %d of %d", name, k, n);
      for (int stride : {1, 3, -1, -5, 0}) {
        S *q = stride > 0 ? (S *)end - (n ? (n - 1) * stride + 1 : 0) : (S *)first - (n ? (n - 1) * stride : 0);
        fill();
        Vec<typename St::Compute> s = n == kLanes ? load_strided(q, stride) : load_strided_partial(q, stride, n);
        for (int k = 0; k < kLanes; ++k) CHECK(bits(s, k) == (k < n ? stored(q + k * stride) : Raw(0)), "load_strided<%s> %d of %d by %d", name, k, n, stride);
        S was[kLanes];
        for (int k = 0; k < n; ++k) was[k] = q[k * stride];
        if (stride != 0) {
          memset((void *)first, 0x55, size_t(end - first));
          if (n == kLanes) store_strided(q, stride, s); else store_strided_partial(q, stride, s, n);
          for (int k = 0; k < n; ++k) CHECK(raw(q + k * stride) == stored(&was[k]), "store_strided<%s> %d of %d by %d", name, k, n, stride);
          size_t untouched = 0;
          for (char *c = first; c < end; ++c) untouched += *c == 0x55;
          CHECK(untouched >= size_t(end - first) - n * sizeof(S), "store_strided<%s> %d by %d touches others", name, n, stride);
        }
        fill();
      }
      S keep[kLanes];
      store(keep, v);
      memset((void *)first, 0x55, size_t(end - first));
      if (n == kLanes) store(p, v); else store_partial(p, v, n);
      for (int k = 0; k < n; ++k) CHECK(raw(p + k) == raw(keep + k), "store_partial<%s> %d of %d", name, k, n);
      for (char *c = first; c < end; ++c) if (c < (char *)p || c >= (char *)(p + n)) CHECK(*c == 0x55, "store_partial<%s> %d touches others", name, n);
      fill();
    }
  }
  S *last = (S *)end - 1;
  for (int k = 0; k < kLanes; ++k) CHECK(bits(splat_load(last), k) == stored(last), "splat_load<%s>", name);
  munmap(map, 4 * page);
}

}  // namespace

int main() {
  check_binary<float>(); check_binary<double>(); check_binary<int8_t>(); check_binary<uint8_t>();
  check_binary<int16_t>(); check_binary<int32_t>(); check_binary<int64_t>();
  check_casts<float>(); check_casts<double>(); check_casts<int8_t>(); check_casts<uint8_t>();
  check_casts<int16_t>(); check_casts<int32_t>(); check_casts<int64_t>();
  check_reduce<float>(); check_reduce<double>(); check_reduce<int8_t>(); check_reduce<uint8_t>();
  check_reduce<int16_t>(); check_reduce<int32_t>(); check_reduce<int64_t>();
  check_masks();
  check_half_types();
  check_memory<float>("float"); check_memory<double>("double"); check_memory<int8_t>("int8_t"); check_memory<uint8_t>("uint8_t");
  check_memory<int16_t>("int16_t"); check_memory<int32_t>("int32_t"); check_memory<int64_t>("int64_t");
  check_memory<bf16>("bf16"); check_memory<f16>("f16"); check_memory<b8>("b8");
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
