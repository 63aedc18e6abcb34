// The definition of scaled dot-product attention, in plain loops and double: what tests compare the kernels with.
#ifndef SEALIFT_KERNELS_ATTENTION_ATTENTION_NAIVE_H
#define SEALIFT_KERNELS_ATTENTION_ATTENTION_NAIVE_H

#include <math.h>

#include "attention.h"

namespace SEALIFT_NS {
namespace naive {

// Row (b, h, s): out gets value_dim numbers, scores is room for `keys` numbers.
static inline void attention_row(const AttentionF32 &a, int64_t b, int64_t h, int64_t s, double *scores, double *out) {
  const int64_t group = h / (a.heads / a.kv_heads);
  const float *q = a.q + b * a.q_strides[0] + h * a.q_strides[1] + s * a.q_strides[2];
  const float *k = a.k + b * a.k_strides[0] + group * a.k_strides[1];
  const float *v = a.v + b * a.v_strides[0] + group * a.v_strides[1];
  double most = -INFINITY, sum = 0;
  for (int64_t t = 0; t < a.keys; t++) {
    double x = 0;
    for (int64_t d = 0; d < a.head_dim; d++) x += static_cast<double>(q[d * a.q_strides[3]]) * k[t * a.k_strides[2] + d * a.k_strides[3]];
    x *= a.scale;
    const int64_t at = b * a.mask_strides[0] + h * a.mask_strides[1] + s * a.mask_strides[2] + t * a.mask_strides[3];
    if (a.mask_kind == kMaskBool && !static_cast<const uint8_t *>(a.mask)[at]) x = -INFINITY;
    if (a.mask_kind == kMaskFloat) x += static_cast<const float *>(a.mask)[at];
    if (a.is_causal && t > s) x = -INFINITY;
    scores[t] = x;
    if (x > most || isnan(x)) most = x;
  }
  for (int64_t j = 0; j < a.value_dim; j++) out[j] = 0;
  if (most == -INFINITY) return;
  for (int64_t t = 0; t < a.keys; t++) sum += scores[t] = exp(scores[t] - most);
  for (int64_t t = 0; t < a.keys; t++)
    for (int64_t j = 0; j < a.value_dim; j++) out[j] += scores[t] / sum * v[t * a.v_strides[2] + j * a.v_strides[3]];
}

} // namespace naive
} // namespace SEALIFT_NS
#endif
