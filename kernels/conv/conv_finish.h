// Everything after the sum, for values that the registers did not finish: bias, activation, residual, activation.
#ifndef SEALIFT_KERNELS_CONV_CONV_FINISH_H
#define SEALIFT_KERNELS_CONV_CONV_FINISH_H

#include "../gemm/activations.h"
#include "../gemm/lanes.h"
#include "../gemm/tile.h"
#include "conv.h"

namespace SEALIFT_NS {
namespace {

template <int kActivation>
void activate_channels(float *values, int64_t count) {
  int64_t j = 0;
  for (; j + kWidth <= count; j += kWidth) store_lanes(values + j, activate<kActivation>(load_lanes(values + j)));
  if (j < count) store_part(values + j, activate<kActivation>(load_part(values + j, count - j)), count - j);
}

void activate_any(int32_t activation, float *values, int64_t count) {
  switch (activation) {
  case kActivationRelu: return activate_channels<kActivationRelu>(values, count);
  case kActivationGeluErf: return activate_channels<kActivationGeluErf>(values, count);
  case kActivationGeluTanh: return activate_channels<kActivationGeluTanh>(values, count);
  case kActivationSilu: return activate_channels<kActivationSilu>(values, count);
  case kActivationSigmoid: return activate_channels<kActivationSigmoid>(values, count);
  case kActivationTanh: return activate_channels<kActivationTanh>(values, count);
  case kActivationRelu6: return activate_channels<kActivationRelu6>(values, count);
  case kActivationHardSwish: return activate_channels<kActivationHardSwish>(values, count);
  case kActivationHardSigmoid: return activate_channels<kActivationHardSigmoid>(values, count);
  default: return;
  }
}

void add_channels(float *values, const float *more, int64_t stride, int64_t count) {
  int64_t j = 0;
  if (stride == 1)
    for (; j + kWidth <= count; j += kWidth) store_lanes(values + j, load_lanes(values + j) + load_lanes(more + j));
  for (; j < count; j++) values[j] += more[j * stride];
}

// The channels of one position, in place. bias and residual point at the first of them; null: none.
void finish_channels(const ConvF32 &c, float *values, int64_t count, const float *bias, const float *residual) {
  if (bias) add_channels(values, bias, 1, count);
  activate_any(c.activation, values, count);
  if (residual) add_channels(values, residual, c.residual_strides[3], count);
  activate_any(c.post_activation, values, count);
}

// Whether a tile can finish its sums in registers.
SEALIFT_INLINE bool finishes_in_registers(const ConvF32 &c) {
  return is_cheap(c.activation) &&
         (c.post_activation == kActivationNone || (c.post_activation == kActivationRelu && c.residual));
}

} // namespace
} // namespace SEALIFT_NS
#endif
