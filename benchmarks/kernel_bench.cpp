// The kernels behind a C interface, for the benchmarks that call them through ctypes: one library per ISA, a pool of threads, nothing else.
#include <time.h>

#include "../kernels/attention/attention.h"
#include "../kernels/gemm/gemm.h"
#include "../kernels/tests/test_host.h"

using namespace SEALIFT_NS;

namespace {

// One thread: its CPU time, so that other load on the machine does not count. Several: the wall clock.
double now(void *host) {
  timespec t;
  clock_gettime(static_cast<TestHost *>(host)->frame.num_workers == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

} // namespace

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
  const double t0 = now(host);
  for (int32_t r = 0; r < repeats; r++)
    for (int32_t i = 0; i < count; i++) {
      g.b = b[i];
      gemm_f32(&static_cast<TestHost *>(host)->frame, g);
    }
  return now(host) - t0;
}

int64_t bench_gemm_scratch(int64_t m, int64_t n, int64_t k, int32_t layout) { return gemm_f32_scratch_bytes(m, n, k, layout); }

// q, k, v and out are [batch, seq, heads, dim], as a transformer's projections leave them.
double bench_attention(void *host, int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t dim, const float *q, const float *k, const float *v,
                       int32_t causal, const float *mask, float scale, float *out, int32_t repeats) {
  AttentionF32 a;
  a.batch = batch, a.heads = a.kv_heads = heads, a.queries = queries, a.keys = keys, a.head_dim = a.value_dim = dim;
  a.q = q, a.k = k, a.v = v, a.out = out, a.is_causal = causal, a.scale = scale;
  int64_t *const all[4] = {a.q_strides, a.k_strides, a.v_strides, a.out_strides};
  for (int i = 0; i < 4; i++) {
    all[i][0] = (i == 0 || i == 3 ? queries : keys) * heads * dim;
    all[i][1] = dim, all[i][2] = heads * dim, all[i][3] = 1;
  }
  if (mask) { // [batch, 1, 1, keys]
    a.mask = mask, a.mask_kind = kMaskFloat;
    a.mask_strides[0] = keys, a.mask_strides[3] = 1;
  }
  const double t0 = now(host);
  for (int32_t r = 0; r < repeats; r++) attention_f32(&static_cast<TestHost *>(host)->frame, a);
  return now(host) - t0;
}

int64_t bench_attention_scratch(int64_t dim) { return attention_f32_scratch_bytes(dim, dim); }

} // extern "C"
