// The definition of the convolutions, in plain loops and double: what tests compare the kernels with.
#ifndef SEALIFT_KERNELS_CONV_CONV_NAIVE_H
#define SEALIFT_KERNELS_CONV_CONV_NAIVE_H

#include <math.h>

#include "../gemm/gemm_naive.h"
#include "conv.h"

namespace SEALIFT_NS {
namespace naive {

// The weight by which input channel ic of output channel oc's group counts at tap (kd, kh, kw).
static inline double conv_weight(const ConvF32 &c, int64_t oc, int64_t ic, int64_t kd, int64_t kh, int64_t kw) {
  const int64_t tap = (kd * c.kernel_h + kh) * c.kernel_w + kw;
  if (c.w_layout == kConvDepthwise) return c.w[tap * c.out_c + oc];
  const int64_t each_in = c.in_c / c.groups, each_out = c.out_c / c.groups, k = tap * each_in + ic;
  const int64_t panel = oc / each_out * ((each_out + 31) / 32) + oc % each_out / 32;
  return c.w[(panel * c.kernel_d * c.kernel_h * c.kernel_w * each_in + k) * 32 + oc % each_out % 32];
}

// *magnitude gets sum |x||w| + |bias|, which bounds the rounding error of any order of summation.
static inline double conv_element(const ConvF32 &c, bool transposed, int64_t n, int64_t od, int64_t oh, int64_t ow, int64_t oc, double *magnitude) {
  const int64_t each_in = c.in_c / c.groups, group = oc / (c.out_c / c.groups);
  double sum = 0, size = 0;
  // The place of x that a tap meets, or -1.
  const auto place = [&](int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t dilation, int64_t size) -> int64_t {
    int64_t at = transposed ? o + pad - k * dilation : o * stride - pad + k * dilation;
    if (transposed) {
      if (at < 0 || at % stride != 0) return -1;
      at /= stride;
    }
    return at < size ? at : -1;
  };
  for (int64_t kd = 0; kd < c.kernel_d; kd++)
    for (int64_t kh = 0; kh < c.kernel_h; kh++)
      for (int64_t kw = 0; kw < c.kernel_w; kw++) {
        const int64_t d = place(od, kd, c.stride_d, c.pad_d, c.dilation_d, c.in_d), h = place(oh, kh, c.stride_h, c.pad_h, c.dilation_h, c.in_h),
                      w = place(ow, kw, c.stride_w, c.pad_w, c.dilation_w, c.in_w);
        if (d < 0 || h < 0 || w < 0) continue;
        const float *x = c.x + n * c.x_strides[0] + d * c.x_stride_d + h * c.x_strides[1] + w * c.x_strides[2];
        for (int64_t ic = 0; ic < each_in; ic++) {
          const double product = x[(group * each_in + ic) * c.x_strides[3]] * conv_weight(c, oc, ic, kd, kh, kw);
          sum += product;
          size += fabs(product);
        }
      }
  if (c.bias) {
    sum += c.bias[oc];
    size += fabs(static_cast<double>(c.bias[oc]));
  }
  sum = activate(c.activation, sum);
  if (c.residual) {
    const double r = c.residual[n * c.residual_strides[0] + od * c.residual_stride_d + oh * c.residual_strides[1] + ow * c.residual_strides[2] + oc * c.residual_strides[3]];
    sum += r;
    size += fabs(r);
  }
  *magnitude = size;
  return activate(c.post_activation, sum);
}

} // namespace naive
} // namespace SEALIFT_NS
#endif
