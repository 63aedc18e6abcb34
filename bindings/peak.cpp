#include "peak.h"

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int ACCUMULATORS = 12;  /* more than FMA's latency times its ports on any core yet: 4 cycles x 2; and no more than 16 registers hold */
constexpr int64_t ROUNDS = 20000; /* about 50 us */

/* Each adds up in registers and returns something the compiler cannot know. */

#if defined(__x86_64__)
__attribute__((target("avx512f"), noinline)) float run_avx512(float x) {
  __m512 sums[ACCUMULATORS], factor = _mm512_set1_ps(x), term = _mm512_set1_ps(1 - x);
  for (auto &sum : sums) sum = _mm512_set1_ps(x);
  for (int64_t i = 0; i < ROUNDS; i++)
#pragma GCC unroll 12
    for (auto &sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  float total = 0;
  for (auto &sum : sums) total += _mm512_reduce_add_ps(sum);
  return total;
}

__attribute__((target("avx2,fma"), noinline)) float run_avx2(float x) {
  __m256 sums[ACCUMULATORS], factor = _mm256_set1_ps(x), term = _mm256_set1_ps(1 - x);
  for (auto &sum : sums) sum = _mm256_set1_ps(x);
  for (int64_t i = 0; i < ROUNDS; i++)
#pragma GCC unroll 12
    for (auto &sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  float total = 0;
  for (auto &sum : sums) total += _mm256_cvtss_f32(sum);
  return total;
}
#endif

typedef float Four __attribute__((vector_size(16)));

__attribute__((noinline)) float run_baseline(float x) {
  Four sums[ACCUMULATORS];
  const Four factor = {x, x, x, x}, term = {1 - x, 1 - x, 1 - x, 1 - x};
  for (auto &sum : sums) sum = factor;
  for (int64_t i = 0; i < ROUNDS; i++)
#pragma GCC unroll 12
    for (auto &sum : sums) sum = sum * factor + term;
  float total = 0;
  for (auto &sum : sums) total += sum[0];
  return total;
}

struct Way {
  float (*run)(float);
  int lanes;
};

Way widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {run_avx512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {run_avx2, 8};
#endif
  return {run_baseline, 4};
}

}  // namespace

double peak_flops_per_s(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Way way = widest();
  volatile float x = 0.5f;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 1e9;
  do {
    const auto before = Clock::now();
    x = way.run(x) > 0 ? 0.5f : 0.25f;
    const double took = std::chrono::duration<double>(Clock::now() - before).count();
    if (took < best) best = took;
  } while (Clock::now() < end);
  return 2.0 * way.lanes * ACCUMULATORS * ROUNDS / best;
}
