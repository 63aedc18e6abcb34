// The f32 matrix product against its definition: shapes with every tail, layouts, batches, activations, NaN and infinity, worker counts.
#include "../gemm/gemm.h"
#include "../gemm/gemm_naive.h"
#include <initializer_list>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

struct Case {
  int64_t m, n, k;
  int32_t layout, activation, post_activation;
  bool bias, residual, epilogue;
  int64_t batch0 = 1, batch1 = 1;
  int64_t pad = 0;           // added to each row stride
  bool broadcast_b = false;  // B is shared by the batch
  bool hostile = false;      // NaN and infinity among the inputs
};

struct Touched { // by the epilogue: how many elements, and the sums of their rows and columns
  int64_t elements, rows, columns;
};

void count_and_negate(void *ctx, float *c, int64_t ldc, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  Touched *t = static_cast<Touched *>(ctx);
  t->elements += (m1 - m0) * (n1 - n0);
  t->rows += (m0 + m1 - 1) * (m1 - m0) / 2 * (n1 - n0);
  t->columns += (n0 + n1 - 1) * (n1 - n0) / 2 * (m1 - m0);
  for (int64_t i = m0; i < m1; i++)
    for (int64_t j = n0; j < n1; j++) c[(i - m0) * ldc + (j - n0)] = -c[(i - m0) * ldc + (j - n0)];
}

int64_t panel_floats(int64_t n, int64_t k) { return (n + 31) / 32 * 32 * k; }

void run_case(const Case &t, Random &random) {
  const int64_t members = t.batch0 * t.batch1;
  GemmF32 g;
  g.m = t.m, g.n = t.n, g.k = t.k;
  g.lda = t.k + t.pad, g.ldc = t.n + t.pad, g.ldr = t.n + 2 * t.pad;
  g.b_layout = t.layout;
  g.ldb = (t.layout == kBTransposed ? t.k : t.n) + t.pad;
  const int64_t b_size = t.layout == kBPanel32 ? panel_floats(t.n, t.k) : (t.layout == kBTransposed ? t.n : t.k) * g.ldb;
  Guarded<float> a(members * t.m * g.lda), b((t.broadcast_b ? 1 : members) * b_size), bias(t.n), residual(members * t.m * g.ldr), c(members * t.m * g.ldc);
  Guarded<float> first(c.size());
  random.fill(a, 1.0f), random.fill(b, 1.0f), random.fill(bias, 1.0f), random.fill(residual, 1.0f);
  if (t.layout == kBPanel32)
    for (int64_t i = 0; i < b.size(); i++)
      if (t.k > 0 && i % b_size / (32 * t.k) * 32 + i % 32 >= t.n) b[i] = 0.0f;
  if (t.hostile) {
    const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f};
    for (int x = 0; x < 6; x++) {
      if (a.size()) a[random.below(a.size())] = values[x % 5];
      if (residual.size()) residual[random.below(residual.size())] = values[x % 5];
      if (bias.size()) bias[random.below(bias.size())] = values[(x + 1) % 5];
    }
  }
  g.a = a.data, g.b = b.data, g.c = c.data;
  g.bias = t.bias ? bias.data : nullptr;
  g.residual = t.residual ? residual.data : nullptr;
  g.activation = t.activation, g.post_activation = t.post_activation;
  g.batch[0] = t.batch0, g.batch[1] = t.batch1;
  const auto strides = [&](int64_t *to, int64_t each) { to[0] = each * t.batch1, to[1] = each; };
  strides(g.a_batch, t.m * g.lda), strides(g.b_batch, t.broadcast_b ? 0 : b_size);
  strides(g.c_batch, t.m * g.ldc), strides(g.residual_batch, t.m * g.ldr);

  char name[200];
  snprintf(name, sizeof name, "gemm m=%ld n=%ld k=%ld layout=%d act=%d post=%d bias=%d res=%d epi=%d batch=%ldx%ld pad=%ld", (long)t.m, (long)t.n, (long)t.k,
           t.layout, t.activation, t.post_activation, t.bias, t.residual, t.epilogue, (long)t.batch0, (long)t.batch1, (long)t.pad);

  // The residual lies in C.
  const bool in_place = t.residual && t.activation == kActivationNone && t.post_activation <= kActivationRelu && t.k <= kGemmInPlaceDepth && random.below(2) == 0;
  g.epilogue = t.epilogue ? count_and_negate : nullptr;
  const int32_t worker_counts[] = {1, 2, 3, 4, 7};
  for (int32_t workers : worker_counts) {
    for (int64_t i = 0; i < c.size(); i++) c[i] = 777.0f;
    if (in_place) {
      g.residual = c.data, g.ldr = g.ldc;
      for (int d = 0; d < 2; d++) g.residual_batch[d] = g.c_batch[d];
      for (int64_t i = 0; i < members * t.m; i++)
        for (int64_t j = 0; j < t.n; j++) c[i * g.ldc + j] = residual[i * (t.n + 2 * t.pad) + j];
    }
    const int64_t stride = gemm_f32_scratch_bytes(t.m, t.n, t.k, t.layout);
    GemmF32Task task;
    task.gemm = g;
    Guarded<char> scratch((stride + 63) / 64 * 64 * workers);
    task.scratch = scratch.data;
    task.scratch_stride_bytes = (stride + 63) / 64 * 64;
    Touched touched = {0, 0, 0};
    task.gemm.epilogue_ctx = &touched;
    const int64_t count = gemm_f32_num_tasks(&task, workers);
    for (int32_t w = 0; w < workers; w++) {
      const int64_t begin = count * w / workers, end = count * (w + 1) / workers;
      if (begin < end) gemm_f32_task(&task, begin, end, w);
    }
    if (t.epilogue) {
      const int64_t rows = members * t.m;
      expect_true(touched.elements == rows * t.n && touched.rows == rows * (rows - 1) / 2 * t.n && touched.columns == t.n * (t.n - 1) / 2 * rows, name);
    }
    if (workers == 1) {
      memcpy(first.data, c.data, static_cast<size_t>(c.size()) * sizeof(float));
    } else {
      expect_true(memcmp(first.data, c.data, static_cast<size_t>(c.size()) * sizeof(float)) == 0, name);
    }
  }
  g.residual = t.residual ? residual.data : nullptr, g.ldr = t.n + 2 * t.pad; // as the definition has it
  strides(g.residual_batch, t.m * g.ldr);
  for (int64_t member = 0; member < members; member++)
    for (int64_t i = 0; i < t.m; i++)
      for (int64_t j = 0; j < g.ldc; j++) {
        const double got = c[(member * t.m + i) * g.ldc + j];
        if (j >= t.n) {
          expect_true(got == 777.0, name);
          continue;
        }
        double magnitude;
        double want = naive::gemm_element(g, member / t.batch1, member % t.batch1, i, j, &magnitude);
        if (t.epilogue) want = -want;
        if (t.hostile && fabs(want) > 1e37) continue; // a finite sum may overflow on the way in float
        expect_close(got, want, (static_cast<double>(t.k) + 8) * 6e-8 * (magnitude + 1e-30) + 4e-7 * fabs(want), name, i, j);
      }
}

void run_threads(int64_t m, int64_t n, int64_t k) {
  Random random(7);
  Guarded<float> a(m * k), b(panel_floats(n, k)), bias(n), one(m * n), more(m * n);
  random.fill(a, 1.0f), random.fill(b, 1.0f), random.fill(bias, 1.0f);
  for (int32_t workers : {1, 2, 4}) {
    TestHost host(workers, gemm_f32_scratch_bytes(m, n, k, kBPanel32));
    GemmF32 g;
    g.m = m, g.n = n, g.k = k, g.lda = k, g.ldc = n;
    g.a = a.data, g.b = b.data, g.bias = bias.data, g.activation = kActivationRelu;
    g.c = workers == 1 ? one.data : more.data;
    for (int round = 0; round < 20; round++) gemm_f32(&host.frame, g);
    if (workers > 1) expect_true(memcmp(one.data, more.data, static_cast<size_t>(m * n) * sizeof(float)) == 0, "threads: bitwise equal");
  }
}

} // namespace

int main() {
  Random random(1);
  const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65};
  for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 29, 43})
    for (int64_t n : sizes)
      for (int64_t k : {0, 1, 3, 4, 9, 31, 64}) {
        const int32_t layout = static_cast<int32_t>(random.below(3));
        const int32_t activation = random.below(2) ? static_cast<int32_t>(random.below(kActivations)) : 0;
        run_case({m, n, k, layout, activation, 0, random.below(2) == 0, random.below(3) == 0, random.below(4) == 0, 1, 1, random.below(3)}, random);
      }
  for (int32_t layout = 0; layout < 3; layout++)
    for (int32_t activation = 0; activation < kActivations; activation++)
      for (int32_t post = 0; post < 7; post++) {
        run_case({9, 45, 20, layout, activation, post, true, post % 2 == 1, true}, random);
        run_case({3, 45, 20, layout, activation, post, false, true, false}, random);
      }
  for (int32_t layout = 0; layout < 3; layout++) { // several blocks of k, of rows; copies of A
    for (int64_t m : {1, 2, 4, 5, 30}) run_case({m, 70, 1030, layout, kActivationRelu, kActivationRelu, true, true, true, 1, 1, 1}, random);
    for (int64_t m : {1, 3, 4, 5, 6, 40})  // a residual that is C itself, at the longest k
      for (int repeat = 0; repeat < 4; repeat++) run_case({m, 41, kGemmInPlaceDepth, layout, kActivationNone, kActivationRelu * (repeat & 1), true, true, false, 1, 1, 1}, random);
    run_case({40, 130, 1024, layout, kActivationGeluErf, 0, true, false, true}, random);
    run_case({300, 100, 300, layout, kActivationNone, kActivationRelu, true, true, false}, random);
    run_case({300, 33, 2048, layout, kActivationNone, 0, false, false, false}, random);
    run_case({170, 97, 513, layout, kActivationSilu, 0, true, true, true, 1, 1, 3}, random);
    for (int64_t m : {1, 4, 7, 33}) {
      run_case({m, 37, 19, layout, kActivationNone, 0, false, false, true, 2, 3}, random);
      run_case({m, 64, 40, layout, kActivationTanh, 0, true, true, false, 3, 2, 5, true}, random);
      run_case({m, 64, 40, layout, kActivationNone, 0, true, true, false, 0, 2, 5, true}, random);
    }
    for (int32_t activation = 0; activation < kActivations; activation++)
      for (int64_t m : {2, 11}) run_case({m, 50, 21, layout, activation, activation == 1 ? 1 : 0, true, true, false, 1, 1, 0, false, true}, random);
  }
  run_threads(128, 96, 100);
  run_threads(1, 1000, 300);
  run_threads(1000, 20, 64);
  return finish_tests("gemm");
}
