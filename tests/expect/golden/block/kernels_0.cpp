// Kernels of block, compiled once per instruction set.
#include "kernels.h"

namespace SEALIFT_NS {

// k0_layer_norm: aten.layer_norm.default
//   model.py:20 norm1: q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4)
void k0_layer_norm(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<4> *>(arg);
  sealift_frame *const frame = task.frame;
  const float *const x = static_cast<const float *>(task.buffer[0]);  // f32 [batch, seq, 16]
  const float *const norm1_weight = static_cast<const float *>(task.buffer[1]);  // f32 [16]
  const float *const norm1_bias = static_cast<const float *>(task.buffer[2]);  // f32 [16]
  float *const layer_norm = static_cast<float *>(const_cast<void *>(task.buffer[3]));  // f32 [batch, seq, 16]
  (void)frame;
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    float layer_norm_0;
    float layer_norm_1;
    float layer_norm_2;
    float layer_norm_3;
    {
      auto v0 = Sum::identity<float>();
      v0 = fold_lanes<Sum, float>(v0, 16, [&](int64_t r2, auto lanes) SEALIFT_LANES_INLINE {
        const auto v1 = load(x + r2 + row * 16, lanes);
        return v1;
      });
      layer_norm_0 = Sum::finish<float>(v0);
    }
    {
      const auto v2 = splat<float>(layer_norm_0);
      const auto v3 = splat<int64_t>(int64_t(16));
      const auto v4 = cast<float>(v3);
      const auto v5 = v2 / v4;
      layer_norm_1 = lane0(v5);
    }
    {
      const auto v7 = splat<float>(layer_norm_1);
      auto v6 = Sum::identity<float>();
      v6 = fold_lanes<Sum, float>(v6, 16, [&](int64_t r7, auto lanes) SEALIFT_LANES_INLINE {
        const auto v8 = load(x + r7 + row * 16, lanes);
        const auto v9 = v8 - v7;
        const auto v10 = v9 * v9;
        return v10;
      });
      layer_norm_2 = Sum::finish<float>(v6);
    }
    {
      const auto v11 = splat<float>(layer_norm_2);
      const auto v12 = splat<int64_t>(int64_t(16));
      const auto v13 = cast<float>(v12);
      const auto v14 = v11 / v13;
      const auto v15 = v14 + splat<float>(1e-05f);
      const auto v16 = sqrt(v15);
      const auto v17 = splat<float>(1.0f) / v16;
      layer_norm_3 = lane0(v17);
    }
    {
      const auto v18 = splat<float>(layer_norm_1);
      const auto v19 = splat<float>(layer_norm_3);
      for_lanes(0, 16, [&](int64_t i12, auto lanes) SEALIFT_LANES_INLINE {
        const auto v20 = load(x + i12 + row * 16, lanes);
        const auto v21 = v20 - v18;
        const auto v22 = v21 * v19;
        const auto v23 = load(norm1_weight + i12, lanes);
        const auto v24 = v22 * v23;
        const auto v25 = load(norm1_bias + i12, lanes);
        const auto v26 = v24 + v25;
        store(layer_norm + i12 + row * 16, v26, lanes);
      });
    }
  }
}

}  // namespace SEALIFT_NS
