// Kernels of mixed, compiled once per instruction set.
#include "kernels.h"

namespace SEALIFT_NS {

// k0_embedding: aten.embedding.default
//   model.py:30 table: e = self.table(ids)
void k0_embedding(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<3> *>(arg);
  sealift_frame *const frame = task.frame;
  const int64_t *const ids = static_cast<const int64_t *>(task.buffer[0]);  // i64 [n]
  const float *const table_weight = static_cast<const float *>(task.buffer[1]);  // f32 [9, 6]
  float *const embedding = static_cast<float *>(const_cast<void *>(task.buffer[2]));  // f32 [n, 6]
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    const auto v0 = splat_load(ids + row);
    const auto v1 = splat<int64_t>(lane0(check_position(frame, v0, 9, Some{1})));
    for_lanes(0, 6, [&](int64_t i1, auto lanes) SEALIFT_LANES_INLINE {
      const auto v2 = load(table_weight + i1 + lane0(v1) * (6), lanes);
      store(embedding + i1 + row * 6, v2, lanes);
    });
  }
}

// k1_cat_to_amax_sub_and_more: aten.cat.default, aten.to.dtype, aten.amax.default, aten.sub.Tensor, aten.exp.default, aten.sum.dim_IntList, aten.div.Tensor
//   model.py:31: z = torch.cat([x, e.to(torch.float64)], 1)
//   model.py:32: w = (z - z.amax(-1, keepdim=True)).exp(); p = w / w.sum(-1, keepdim=True)
void k1_cat_to_amax_sub_and_more(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<4> *>(arg);
  sealift_frame *const frame = task.frame;
  const double *const x = static_cast<const double *>(task.buffer[0]);  // f64 [n, 3]
  const float *const embedding = static_cast<const float *>(task.buffer[1]);  // f32 [n, 6]
  double *const cat = static_cast<double *>(const_cast<void *>(task.buffer[2]));  // f64 [n, 9]
  double *const div = static_cast<double *>(const_cast<void *>(task.buffer[3]));  // f64 [n, 9]
  double *const exp_ = scratch_at<double>(frame, worker, 0);
  for (int64_t row = begin; row < end; ++row) {
    double amax_0;
    double sum_0;
    {
      for_lanes(0, 3, [&](int64_t i1, auto lanes) SEALIFT_LANES_INLINE {
        const auto v0 = load(x + i1 + row * 3, lanes);
        store(cat + i1 + row * 9, v0, lanes);
      });
    }
    {
      for_lanes(0, 6, [&](int64_t i3, auto lanes) SEALIFT_LANES_INLINE {
        const auto v1 = load(embedding + i3 + row * 6, lanes);
        const auto v2 = cast<double>(v1);
        store(cat + i3 + row * 9 + 3, v2, lanes);
      });
    }
    {
      auto v3 = Max::identity<double>();
      v3 = fold_lanes<Max, double>(v3, 9, [&](int64_t r1, auto lanes) SEALIFT_LANES_INLINE {
        const auto v4 = load(cat + r1 + row * 9, lanes);
        return v4;
      });
      amax_0 = Max::finish<double>(v3);
    }
    {
      const auto v5 = splat<double>(amax_0);
      for_lanes(0, 9, [&](int64_t i1, auto lanes) SEALIFT_LANES_INLINE {
        const auto v6 = load(cat + i1 + row * 9, lanes);
        const auto v7 = v6 - v5;
        const auto v8 = exp(v7);
        store(exp_ + i1, v8, lanes);
      });
    }
    {
      auto v9 = Sum::identity<double>();
      v9 = fold_lanes<Sum, double>(v9, 9, [&](int64_t r1, auto lanes) SEALIFT_LANES_INLINE {
        const auto v10 = load(exp_ + r1, lanes);
        return v10;
      });
      sum_0 = Sum::finish<double>(v9);
    }
    {
      const auto v11 = splat<double>(sum_0);
      for_lanes(0, 9, [&](int64_t i1, auto lanes) SEALIFT_LANES_INLINE {
        const auto v12 = load(exp_ + i1, lanes);
        const auto v13 = v12 / v11;
        store(div + i1 + row * 9, v13, lanes);
      });
    }
  }
}

// k2_gt_sum: aten.gt.Scalar, aten.sum.dim_IntList
//   model.py:33: count = (z > 0).sum(0)
void k2_gt_sum(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const double *const cat = static_cast<const double *>(task.buffer[0]);  // f64 [n, 9]
  int64_t *const count = static_cast<int64_t *>(const_cast<void *>(task.buffer[1]));  // i64 [9]
  const int64_t n = frame->sizes[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    for_lanes(0, 9, [&](int64_t i0, auto lanes) SEALIFT_LANES_INLINE {
      auto v0 = Sum::identity<int64_t>();
      for (int64_t r1 = 0; r1 < n; ++r1) {
        const auto v1 = load(cat + i0 + r1 * 9, lanes);
        const auto v2 = gt(v1, splat<double>(0.0));
        const auto v3 = cast<int64_t>(v2);
        v0 = Sum::join(v0, v3);
      }
      store(count + i0, v0, lanes);
    });
  }
}

// k3_argmax: aten.argmax.default
//   model.py:34: best = z.argmax(1).to(torch.int32) + ids.to(torch.int32)
void k3_argmax(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const double *const cat = static_cast<const double *>(task.buffer[0]);  // f64 [n, 9]
  int64_t *const argmax = static_cast<int64_t *>(const_cast<void *>(task.buffer[1]));  // i64 [n]
  const int64_t n = frame->sizes[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    for_lanes(0, n, [&](int64_t i0, auto lanes) SEALIFT_LANES_INLINE {
      auto v0 = ArgMax::start<double>();
      for (int64_t r1 = 0; r1 < 9; ++r1) {
        const auto v1 = load_strided(cat + i0 * 9 + r1, 9, lanes);
        v0 = challenge<ArgMax>(v0, v1, r1);
      }
      store(argmax + i0, v0.position, lanes);
    });
  }
}

// k4_to_add: aten.to.dtype, aten.add.Tensor
//   model.py:34: best = z.argmax(1).to(torch.int32) + ids.to(torch.int32)
void k4_to_add(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<3> *>(arg);
  sealift_frame *const frame = task.frame;
  const int64_t *const argmax = static_cast<const int64_t *>(task.buffer[0]);  // i64 [n]
  const int64_t *const ids = static_cast<const int64_t *>(task.buffer[1]);  // i64 [n]
  int32_t *const add = static_cast<int32_t *>(const_cast<void *>(task.buffer[2]));  // i32 [n]
  (void)frame;
  (void)worker;
  for_lanes(begin, end, [&](int64_t i0, auto lanes) SEALIFT_LANES_INLINE {
    const auto v0 = load(argmax + i0, lanes);
    const auto v1 = cast<int32_t>(v0);
    const auto v2 = load(ids + i0, lanes);
    const auto v3 = cast<int32_t>(v2);
    const auto v4 = v1 + v3;
    store(add + i0, v4, lanes);
  });
}

// k5_to_mul: aten.to.dtype, aten.t.default, aten.mul.Tensor
//   model.py:35: return p, count, best, e.bfloat16().t() * 2
void k5_to_mul(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const float *const embedding = static_cast<const float *>(task.buffer[0]);  // f32 [n, 6]
  bf16 *const mul = static_cast<bf16 *>(const_cast<void *>(task.buffer[1]));  // bf16 [6, n]
  const int64_t n = frame->sizes[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i1 = 0; i1 < n; ++i1) {
      for_lanes(0, 6, [&](int64_t i0, auto lanes) SEALIFT_LANES_INLINE {
        const auto v0 = load(embedding + i0 + i1 * 6, lanes);
        const auto v1 = round_to_bf16(v0);
        const auto v2 = v1;
        const auto v3 = v2 * splat<float>(2.0f);
        const auto v4 = round_to_bf16(v3);
        store(mul + i0 + i1 * 6, v4, lanes);
      });
    }
  }
}

}  // namespace SEALIFT_NS
