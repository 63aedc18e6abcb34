// Sorting against std::stable_sort: every type, row lengths around every switch of method, counts, ties, NaN, both zeros, orders that selection finds
// hardest, worker counts.
#include "../sort/sort.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

enum Order { kRandom, kTies, kAscending, kDescending, kConstant, kSpecial };

double half_value(uint16_t bits, int fraction_bits) { // bf16 and f16 differ in where the exponent ends
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : (bits & 0x8000 ? -INFINITY : INFINITY);
  const double magnitude = exponent ? ldexp(1.0 + ldexp(fraction, -fraction_bits), exponent - bias) : ldexp(fraction, 1 - bias - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <class T> long double value_of(T raw, int32_t dtype) {
  if (dtype == SEALIFT_BFLOAT16) return half_value(static_cast<uint16_t>(raw), 7);
  if (dtype == SEALIFT_FLOAT16) return half_value(static_cast<uint16_t>(raw), 10);
  if (dtype == SEALIFT_BOOL) return raw != T(0);
  return static_cast<long double>(raw); // 64 bits of it: every int64 is one
}

template <class T> T element(int32_t dtype, Order order, int64_t i, Random &random) {
  switch (order) {
  case kTies: return static_cast<T>(random.below(3));
  case kAscending: return static_cast<T>(i);
  case kDescending: return static_cast<T>(-i);
  case kConstant: return static_cast<T>(5);
  default: break;
  }
  T raw;
  const uint64_t bits = random.bits();
  memcpy(&raw, &bits, sizeof raw); // NaN of both signs, denormal numbers, everything
  if (dtype == SEALIFT_FLOAT32 && order == kSpecial) {
    const float special[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, -1e-42f, 1.0f};
    return static_cast<T>(special[random.below(9)]);
  }
  if (dtype == SEALIFT_FLOAT64 && order == kSpecial) {
    const double special[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 5e-324, -5e-324, 1.0};
    return static_cast<T>(special[random.below(9)]);
  }
  if ((dtype == SEALIFT_BFLOAT16 || dtype == SEALIFT_FLOAT16) && order == kSpecial) {
    const int special[] = {0x7fff, 0xffff, 0x7c00, 0xfc00, 0x7f80, 0xff80, 0, 0x8000, 1, 0x8001};
    return static_cast<T>(special[random.below(10)]);
  }
  return raw;
}

template <class T> void run_case(int32_t dtype, int64_t rows, int64_t n, int64_t count, Order order, int32_t descending, Random &random) {
  Guarded<T> x(rows * n), values(rows * count);
  Guarded<int64_t> indices(rows * count);
  for (int64_t i = 0; i < rows * n; i++) x[i] = element<T>(dtype, order, n ? i % n : 0, random);
  SortRows s;
  s.x = x.data, s.values = values.data, s.indices = indices.data;
  s.rows = rows, s.n = n, s.count = count, s.dtype = dtype, s.descending = descending;
  const int64_t stride = (sort_rows_scratch_bytes(n, count, dtype) + 63) / 64 * 64;
  char name[160];
  snprintf(name, sizeof name, "sort dtype=%d rows=%ld n=%ld count=%ld order=%d descending=%d", dtype, (long)rows, (long)n, (long)count, order, descending);
  for (int32_t workers : {1, 3}) {
    memset(values.data, 0x55, static_cast<size_t>(rows * count) * sizeof(T));
    for (int64_t i = 0; i < rows * count; i++) indices[i] = -7;
    Guarded<char> scratch(stride * workers);
    SortRowsTask task;
    task.sort = s, task.scratch = scratch.data, task.scratch_stride_bytes = stride;
    for (int32_t w = 0; w < workers; w++) sort_rows_task(&task, rows * w / workers, rows * (w + 1) / workers, w);
    std::vector<int64_t> wanted(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows; r++) {
      std::iota(wanted.begin(), wanted.end(), int64_t(0));
      std::stable_sort(wanted.begin(), wanted.end(), [&](int64_t a, int64_t b) {
        const long double p = value_of(x[r * n + (descending ? b : a)], dtype), q = value_of(x[r * n + (descending ? a : b)], dtype);
        return p < q || (p == p && q != q);
      });
      bool same = true;
      for (int64_t j = 0; j < count; j++) {
        same = same && indices[r * count + j] == wanted[static_cast<size_t>(j)];
        same = same && memcmp(&values[r * count + j], &x[r * n + wanted[static_cast<size_t>(j)]], sizeof(T)) == 0;
      }
      expect_true(same, name);
    }
  }
}

template <class T> void run_type(int32_t dtype) {
  Random random(static_cast<uint64_t>(dtype) + 1);
  for (int64_t n : {0, 1, 2, 3, 15, 16, 17, 47, 48, 49, 64, 65, 200, 257, 1000, 2400})
    for (int64_t count : {int64_t(0), int64_t(1), int64_t(2), int64_t(15), int64_t(16), int64_t(17), int64_t(40), n / 8, n / 2, n - 1, n})
      for (int32_t descending : {0, 1}) {
        if (count < 0 || count > n) continue;
        run_case<T>(dtype, n > 300 ? 2 : 3, n, count, static_cast<Order>(random.below(6)), descending, random);
      }
  for (int order = 0; order < 6; order++)
    for (int64_t count : {1, 5, 16, 100, 300, 5000})
      for (int32_t descending : {0, 1}) run_case<T>(dtype, 1, 5000, count, static_cast<Order>(order), descending, random);
}

void run_threads() {
  Random random(3);
  const int64_t rows = 40, n = 700;
  Guarded<float> x(rows * n), one(rows * n), more(rows * n);
  Guarded<int64_t> one_at(rows * n), more_at(rows * n);
  random.fill(x, 1.0f);
  for (int32_t workers : {1, 2, 4})
    for (int64_t count : {n, int64_t(3), int64_t(60)}) {
      TestHost alone(1, sort_rows_scratch_bytes(n, count, SEALIFT_FLOAT32)), host(workers, sort_rows_scratch_bytes(n, count, SEALIFT_FLOAT32));
      SortRows s;
      s.x = x.data, s.rows = rows, s.n = n, s.count = count, s.dtype = SEALIFT_FLOAT32, s.descending = 1;
      s.values = one.data, s.indices = one_at.data;
      sort_rows(&alone.frame, s);
      s.values = more.data, s.indices = more_at.data;
      sort_rows(&host.frame, s);
      const size_t size = static_cast<size_t>(rows * count);
      expect_true(memcmp(one.data, more.data, size * sizeof(float)) == 0 && memcmp(one_at.data, more_at.data, size * 8) == 0, "threads: bitwise equal");
    }
}

} // namespace

int main() {
  run_type<float>(SEALIFT_FLOAT32);
  run_type<double>(SEALIFT_FLOAT64);
  run_type<uint16_t>(SEALIFT_BFLOAT16);
  run_type<uint16_t>(SEALIFT_FLOAT16);
  run_type<int64_t>(SEALIFT_INT64);
  run_type<int32_t>(SEALIFT_INT32);
  run_type<int16_t>(SEALIFT_INT16);
  run_type<int8_t>(SEALIFT_INT8);
  run_type<uint8_t>(SEALIFT_UINT8);
  run_type<uint8_t>(SEALIFT_BOOL);
  run_threads();
  return finish_tests("sort");
}
