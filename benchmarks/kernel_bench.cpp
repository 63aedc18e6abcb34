// The kernels behind a C interface, for the benchmarks that call them through ctypes: one library per ISA, a pool of threads, nothing else.
#include <time.h>

#include "../kernels/gemm/gemm.h"
#include "../kernels/tests/test_host.h"

using namespace SEALIFT_NS;

extern "C" {

void *bench_host(int32_t workers, int64_t scratch_bytes) { return new TestHost(workers, scratch_bytes); }
void bench_host_free(void *host) { delete static_cast<TestHost *>(host); }

// W [n, k] as torch's Linear has it, into panels of 32.
void bench_pack(const float *w, int64_t n, int64_t k, float *to) {
  for (int64_t p = 0; p < (n + 31) / 32; p++)
    for (int64_t x = 0; x < k; x++)
      for (int64_t j = 0; j < 32; j++) *to++ = p * 32 + j < n ? w[(p * 32 + j) * k + x] : 0.0f;
}

// Seconds for `repeats` passes over `count` weight matrices, one product each.
double bench_gemm(void *host, int64_t m, int64_t n, int64_t k, const float *a, const float *const *b, int32_t count, int32_t layout, const float *bias,
                  int32_t activation, float *c, int32_t repeats) {
  GemmF32 g;
  g.m = m, g.n = n, g.k = k, g.lda = k, g.ldc = n;
  g.b_layout = layout, g.ldb = layout == kBTransposed ? k : n;
  g.a = a, g.c = c, g.bias = bias, g.activation = activation;
  timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  for (int32_t r = 0; r < repeats; r++)
    for (int32_t i = 0; i < count; i++) {
      g.b = b[i];
      gemm_f32(&static_cast<TestHost *>(host)->frame, g);
    }
  clock_gettime(CLOCK_MONOTONIC, &t1);
  return static_cast<double>(t1.tv_sec - t0.tv_sec) + 1e-9 * static_cast<double>(t1.tv_nsec - t0.tv_nsec);
}

int64_t bench_gemm_scratch(int64_t m, int64_t n, int64_t k, int32_t layout) { return gemm_f32_scratch_bytes(m, n, k, layout); }

} // extern "C"
