// f32 matrix product with a fused epilogue: the interface that generated code includes.
//
//   C[m, n] = post_activation(activation(A[m, k] * B[k, n] + bias[n]) + residual[m, n]), then the generated epilogue
//
// Results are bitwise the same for any number of workers: the order in which an element's products are added depends on (m, n, k), the layout of B
// and the ISA only.
#ifndef SEALIFT_KERNELS_GEMM_GEMM_H
#define SEALIFT_KERNELS_GEMM_GEMM_H

#include <stdint.h>

#include "../simd/isa.h"

struct sealift_frame;

namespace SEALIFT_NS {

enum GemmActivation : int32_t {
  kActivationNone = 0,
  kActivationRelu = 1, // keeps NaN and -0.0, as eager does
  kActivationGeluErf = 2,
  kActivationGeluTanh = 3,
  kActivationSilu = 4,
  kActivationSigmoid = 5,
  kActivationTanh = 6,
  kActivationRelu6 = 7,
  kActivationHardSwish = 8,
  kActivationHardSigmoid = 9
};
constexpr int32_t kActivations = 10;

enum GemmLayout : int32_t {
  kBPanel32 = 0,   // SEALIFT_PANEL32: ceil(n / 32) panels of [k][32], zero padded; ldb unused
  kBRowMajor = 1,  // [k, n], row stride ldb
  kBTransposed = 2 // [n, k], row stride ldb: torch's Linear weight as it comes
};

// Rows are numbered through the batch: row i of batch member (i0, i1) is ((i0 * batch[1] + i1) * m + i). c_tile is the element (row m0, column n0).
typedef void (*GemmEpilogue)(void *ctx, float *c_tile, int64_t ldc, int64_t m0, int64_t m1, int64_t n0, int64_t n1);

// A residual may be C itself, with the same strides, where k is at most this, there is no activation, and none but ReLU after it: then no partial sum
// is stored. (Sums that started from the residual would be rounded to its precision at every step.)
constexpr int64_t kGemmInPlaceDepth = 192;

// Otherwise C must not overlap A, B, bias or residual: partial sums of long k live in C between blocks. Strides are in elements.
struct GemmF32 {
  const float *a = nullptr;
  int64_t lda = 0;
  const float *b = nullptr;
  int64_t ldb = 0;
  int32_t b_layout = kBPanel32;
  int32_t activation = kActivationNone;
  int32_t post_activation = kActivationNone; // after the residual
  const float *bias = nullptr;               // [n], not padded; may be null
  const float *residual = nullptr;           // [m, n], row stride ldr; may be null
  int64_t ldr = 0;
  float *c = nullptr;
  int64_t ldc = 0;
  int64_t m = 0, n = 0, k = 0;
  GemmEpilogue epilogue = nullptr; // called once per macro-tile, after everything above, while the tile is in a near cache
  void *epilogue_ctx = nullptr;
  int64_t batch[2] = {1, 1}; // outer, inner; a stride of 0 broadcasts
  int64_t a_batch[2] = {0, 0}, b_batch[2] = {0, 0}, c_batch[2] = {0, 0}, residual_batch[2] = {0, 0};
};

// What a task gets as its argument.
struct GemmF32Task {
  GemmF32 gemm;
  char *scratch = nullptr;          // worker w's part is at scratch + w * scratch_stride_bytes
  int64_t scratch_stride_bytes = 0; // at least gemm_f32_scratch_bytes(...)
  int64_t row_chunks = 1, panel_chunks = 1;
};

// Bytes of scratch a worker needs; the same for every ISA, so that one compute_sizes() serves a library. Monotonic in m and k.
static inline int64_t gemm_f32_scratch_bytes(int64_t m, int64_t n, int64_t k, int32_t b_layout) {
  const int64_t kc = k < 512 ? (k + 15) / 16 * 16 : 512;
  const int64_t rows = m < 256 ? m : 256;
  (void)n;
  return (b_layout == kBPanel32 ? 0 : kc * 32 * 4) + rows * (kc + 16) * 4 + 128;
}

// Splits the work for num_workers and returns how many units there are; the task runs units [begin, end).
int64_t gemm_f32_num_tasks(GemmF32Task *task, int32_t num_workers);
void gemm_f32_task(void *task, int64_t begin, int64_t end, int32_t worker);

// All of it: on the caller's thread where a fork would cost more than it saves, else through frame->host->parallel_for.
void gemm_f32(sealift_frame *frame, const GemmF32 &gemm);

} // namespace SEALIFT_NS
#endif
