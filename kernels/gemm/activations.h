// The closed set of activations on a vector register.
#ifndef SEALIFT_KERNELS_GEMM_ACTIVATIONS_H
#define SEALIFT_KERNELS_GEMM_ACTIVATIONS_H

#include "gemm.h"
#include "lanes.h"

namespace SEALIFT_NS {
namespace {

template <typename Function>
SEALIFT_INLINE Lanes each_lane(Lanes x, Function f) {
  union {
    Lanes whole;
    float part[kWidth];
  } u{x};
  for (float &lane : u.part) lane = f(lane);
  return u.whole;
}

template <int kActivation>
SEALIFT_INLINE Lanes activate(Lanes x) {
  if constexpr (kActivation == kActivationRelu) return x < Lanes{} ? Lanes{} : x;
  if constexpr (kActivation == kActivationGeluErf) return each_lane(x, [](float v) { return 0.5f * v * (1.0f + __builtin_erff(v * 0.70710678118654752f)); });
  if constexpr (kActivation == kActivationGeluTanh)
    return each_lane(x, [](float v) { return 0.5f * v * (1.0f + __builtin_tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v))); });
  if constexpr (kActivation == kActivationSilu) return each_lane(x, [](float v) { return v / (1.0f + __builtin_expf(-v)); });
  if constexpr (kActivation == kActivationSigmoid) return each_lane(x, [](float v) { return 1.0f / (1.0f + __builtin_expf(-v)); });
  if constexpr (kActivation == kActivationTanh) return each_lane(x, [](float v) { return __builtin_tanhf(v); });
  return x;
}

} // namespace
} // namespace SEALIFT_NS
#endif
