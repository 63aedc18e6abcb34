// Kernels of branch, compiled once per instruction set.
#include "kernels.h"

namespace SEALIFT_NS {

// k0_mean: aten.mean.default
//   branch.py:8
void k0_mean(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const float *const x = static_cast<const float *>(task.buffer[0]);  // f32 [batch, 8]
  float *const mean_0 = static_cast<float *>(const_cast<void *>(task.buffer[1]));  // f32 []
  const int64_t batch = frame->sizes[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    auto v0 = Sum::identity<float>();
    v0 = fold_lanes<Sum, float>(v0, batch * 8, [&](int64_t r0_r1, auto lanes) SEALIFT_LANES_INLINE {
      const auto v1 = load(x + r0_r1, lanes);
      return v1;
    });
    store_one(mean_0, splat<float>(Sum::finish<float>(v0)));
  }
}

// k1_mean_gt: aten.mean.default, aten.gt.Scalar
//   branch.py:8
void k1_mean_gt(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const float *const mean_0 = static_cast<const float *>(task.buffer[0]);  // f32 []
  b8 *const gt_ = static_cast<b8 *>(const_cast<void *>(task.buffer[1]));  // bool []
  const int64_t batch = frame->sizes[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    const auto v0 = splat_load(mean_0);
    const auto v1 = splat<int64_t>(int64_t(batch * 8));
    const auto v2 = cast<float>(v1);
    const auto v3 = v0 / v2;
    const auto v4 = gt(v3, splat<float>(0.0f));
    store_one(gt_, v4);
  }
}

// k0_cond_false_neg_: aten.neg.default
//   branch.py:10
void k0_cond_false_neg_(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const float *const x3 = static_cast<const float *>(task.buffer[0]);  // f32 [batch, 8]
  float *const neg_ = static_cast<float *>(const_cast<void *>(task.buffer[1]));  // f32 [batch, 8]
  (void)frame;
  (void)worker;
  for_lanes(begin, end, [&](int64_t i0_i1, auto lanes) SEALIFT_LANES_INLINE {
    const auto v0 = load(x3 + i0_i1, lanes);
    const auto v1 = neg(v0);
    store(neg_ + i0_i1, v1, lanes);
  });
}

// k3_scalar_tensor: aten.scalar_tensor.default
//   branch.py:13
void k3_scalar_tensor(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<1> *>(arg);
  sealift_frame *const frame = task.frame;
  int64_t *const zero = static_cast<int64_t *>(const_cast<void *>(task.buffer[0]));  // i64 []
  (void)frame;
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    store_one(zero, splat<int64_t>(INT64_C(0)));
  }
}

// k0_loop_body_add: aten.add.Tensor
//   branch.py:15
void k0_loop_body_add(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<2> *>(arg);
  sealift_frame *const frame = task.frame;
  const int64_t *const i3_ = static_cast<const int64_t *>(task.buffer[0]);  // i64 []
  int64_t *const add = static_cast<int64_t *>(const_cast<void *>(task.buffer[1]));  // i64 []
  (void)frame;
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    const auto v0 = splat_load(i3_);
    const auto v1 = v0 + splat<int64_t>(INT64_C(1));
    store_one(add, v1);
  }
}

// k0_loop_cond_lt_: aten.lt.Tensor
//   branch.py:14
void k0_loop_cond_lt_(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const auto &task = *static_cast<Task<3> *>(arg);
  sealift_frame *const frame = task.frame;
  const int64_t *const i2_ = static_cast<const int64_t *>(task.buffer[0]);  // i64 []
  const int64_t *const n2 = static_cast<const int64_t *>(task.buffer[1]);  // i64 []
  b8 *const lt_ = static_cast<b8 *>(const_cast<void *>(task.buffer[2]));  // bool []
  (void)frame;
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    const auto v0 = splat_load(i2_);
    const auto v1 = splat_load(n2);
    const auto v2 = lt(v0, v1);
    store_one(lt_, v2);
  }
}

}  // namespace SEALIFT_NS
