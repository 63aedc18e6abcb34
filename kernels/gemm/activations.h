// The closed set of activations on a register. The functions themselves, and their accuracy, are kernels/simd/math.h's.
#ifndef SEALIFT_KERNELS_GEMM_ACTIVATIONS_H
#define SEALIFT_KERNELS_GEMM_ACTIVATIONS_H

#include "gemm.h"
#include "lanes.h"

namespace SEALIFT_NS {
namespace {

SEALIFT_INLINE Lanes relu(Lanes x) { return larger(Lanes{}, x); } // NaN and -0.0 stay
SEALIFT_INLINE Lanes relu6(Lanes x) { return smaller(broadcast(6.0f), relu(x)); }
SEALIFT_INLINE Lanes hard_sigmoid(Lanes x) { return relu6(x + broadcast(3.0f)) * broadcast(1.0f / 6.0f); }
SEALIFT_INLINE Lanes hard_swish(Lanes x) { return x * relu6(x + broadcast(3.0f)) * broadcast(1.0f / 6.0f); }

template <int kActivation>
SEALIFT_INLINE Lanes activate(Lanes x) {
  if constexpr (kActivation == kActivationRelu) return relu(x);
  else if constexpr (kActivation == kActivationGeluErf) return to_lanes(gelu_erf(to_vec(x)));
  else if constexpr (kActivation == kActivationGeluTanh) return to_lanes(gelu_tanh(to_vec(x)));
  else if constexpr (kActivation == kActivationSilu) return to_lanes(silu(to_vec(x)));
  else if constexpr (kActivation == kActivationSigmoid) return to_lanes(sigmoid(to_vec(x)));
  else if constexpr (kActivation == kActivationTanh) return to_lanes(tanh(to_vec(x)));
  else if constexpr (kActivation == kActivationRelu6) return relu6(x);
  else if constexpr (kActivation == kActivationHardSwish) return hard_swish(x);
  else if constexpr (kActivation == kActivationHardSigmoid) return hard_sigmoid(x);
  else return x;
}

} // namespace
} // namespace SEALIFT_NS
#endif
