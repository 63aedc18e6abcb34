// A kernel as the code generator writes them, for the compile time that test_simd.py prints.
#include "simd/simd.h"

using namespace SEALIFT_NS;

extern "C" void small_kernel(const float *x, const bf16 *w, float *out, b8 *mask, int64_t n) {
  for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
    Vec<float> a = load(x + i), b = load(w + i), c = splat_load(x);
    Vec<float> r = select(gt(a, b), add(mul(exp(a), b), c), maximum(tanh(sub(a, c)), minimum(abs(b), div(a, c))));
    store(out + i, r);
    store(mask + i, lt(a, b));
  }
}
