// The definition of the f32 matrix product, in plain loops and double: what tests compare the kernels with.
#ifndef SEALIFT_KERNELS_GEMM_GEMM_NAIVE_H
#define SEALIFT_KERNELS_GEMM_GEMM_NAIVE_H

#include <math.h>

#include "gemm.h"

namespace SEALIFT_NS {
namespace naive {

static inline double activate(int32_t activation, double x) {
  switch (activation) {
  case kActivationRelu: return x < 0 ? 0.0 : x;
  case kActivationGeluErf: return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
  case kActivationGeluTanh: return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  case kActivationSilu: return x / (1.0 + exp(-x));
  case kActivationSigmoid: return 1.0 / (1.0 + exp(-x));
  case kActivationTanh: return tanh(x);
  case kActivationRelu6: return x < 0 ? 0.0 : x > 6 ? 6.0 : x;
  case kActivationHardSwish: return x * activate(kActivationRelu6, x + 3) / 6;
  case kActivationHardSigmoid: return activate(kActivationRelu6, x + 3) / 6;
  default: return x;
  }
}

// B's element (k, n) of one batch member.
static inline double b_element(const GemmF32 &g, const float *b, int64_t k, int64_t n) {
  if (g.b_layout == kBPanel32) return b[(n / 32 * g.k + k) * 32 + n % 32];
  return g.b_layout == kBRowMajor ? b[k * g.ldb + n] : b[n * g.ldb + k];
}

// Element (i, j) of batch member (i0, i1). *magnitude gets sum |a||b| + |bias|, which bounds the rounding error of any order of summation.
static inline double gemm_element(const GemmF32 &g, int64_t i0, int64_t i1, int64_t i, int64_t j, double *magnitude) {
  const float *a = g.a + i0 * g.a_batch[0] + i1 * g.a_batch[1];
  const float *b = g.b + i0 * g.b_batch[0] + i1 * g.b_batch[1];
  double sum = 0, size = 0;
  for (int64_t k = 0; k < g.k; k++) {
    const double x = a[i * g.lda + k], y = b_element(g, b, k, j);
    sum += x * y;
    size += fabs(x * y);
  }
  if (g.bias) {
    sum += g.bias[j];
    size += fabs(static_cast<double>(g.bias[j]));
  }
  sum = activate(g.activation, sum);
  if (g.residual) {
    const double r = g.residual[i0 * g.residual_batch[0] + i1 * g.residual_batch[1] + i * g.ldr + j];
    sum += r;
    size += fabs(r);
  }
  *magnitude = size;
  return activate(g.post_activation, sum);
}

} // namespace naive
} // namespace SEALIFT_NS
#endif
