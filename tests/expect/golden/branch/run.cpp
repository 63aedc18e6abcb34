// branch, one run: every kernel in order.
#include "kernels.h"
#include "kernels/gemm/gemm.h"

namespace SEALIFT_NS {
namespace {

__attribute__((noinline, cold)) int32_t failed(sealift_frame *frame, int32_t kernel) {
  frame->error_kernel = kernel;
  return -1;
}

int32_t run_cond_false(sealift_frame *frame, const void *const *inputs, void *const *outputs, char *arena) {
  (void)arena;
  const int64_t batch = frame->sizes[0];
  // 0 neg: branch.py:10
  {
    Task<2> task = {frame, {inputs[0], outputs[0]}};
    dispatch(frame, batch * 8, 1, k0_cond_false_neg_, &task);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 2);
  return 0;
}

int32_t run_cond_true(sealift_frame *frame, const void *const *inputs, void *const *outputs, char *arena) {
  (void)arena;
  const int64_t batch = frame->sizes[0];
  // 0 linear_relu: branch.py:9 proj; branch.py:9
  {
    GemmF32 gemm;
    gemm.m = batch, gemm.n = 8, gemm.k = 8;
    gemm.a = static_cast<const float *>(inputs[0]), gemm.lda = 8;
    gemm.b = static_cast<const float *>(frame->weights[0]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[1]);
    gemm.activation = kActivationRelu;
    gemm.c = static_cast<float *>(outputs[0]), gemm.ldc = 8;
    gemm_f32(frame, gemm);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 2);
  return 0;
}

int32_t run_loop_body(sealift_frame *frame, const void *const *inputs, void *const *outputs, char *arena) {
  (void)arena;
  const int64_t batch = frame->sizes[0];
  // 0 add: branch.py:15
  {
    Task<2> task = {frame, {inputs[0], outputs[0]}};
    dispatch(frame, 1, 1, k0_loop_body_add, &task);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  // 1 mm_tanh: branch.py:15
  {
    GemmF32 gemm;
    gemm.m = batch, gemm.n = 8, gemm.k = 8;
    gemm.a = static_cast<const float *>(inputs[1]), gemm.lda = 8;
    gemm.b = static_cast<const float *>(frame->weights[2]), gemm.b_layout = kBPanel32;
    gemm.activation = kActivationTanh;
    gemm.c = static_cast<float *>(outputs[1]), gemm.ldc = 8;
    gemm_f32(frame, gemm);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  return 0;
}

int32_t run_loop_cond(sealift_frame *frame, const void *const *inputs, void *const *outputs, char *arena) {
  (void)arena;
  // 0 lt: branch.py:14
  {
    Task<3> task = {frame, {inputs[0], inputs[2], outputs[0]}};
    dispatch(frame, 1, 1, k0_loop_cond_lt_, &task);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  return 0;
}

}  // namespace

int32_t run_branch(sealift_frame *frame) {
  const int64_t batch = frame->sizes[0];
  (void)batch;
  // 0 mean: branch.py:8
  {
    const uint64_t token = begin_record(frame, 0);
    Task<2> task = {frame, {frame->inputs[0], static_cast<const void *>(frame->arena)}};
    dispatch(frame, 1, batch * 8, k0_mean, &task);
    end_record(frame, 0, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 0);
  // 1 mean_gt: branch.py:8
  {
    const uint64_t token = begin_record(frame, 1);
    Task<2> task = {frame, {static_cast<const void *>(frame->arena), static_cast<const void *>(frame->arena + ((batch * 32 + 63) / 64) * 64)}};
    dispatch(frame, 1, 1, k1_mean_gt, &task);
    end_record(frame, 1, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 1);
  // 2 cond: branch.py:8
  {
    const uint64_t token = begin_record(frame, 2);
    char *const room = static_cast<char *>(static_cast<void *>(frame->arena + ((batch * 32 + 63) / 64) * 64 + 64));
    const void *const given[] = {frame->inputs[0]};
    void *const made[] = {static_cast<void *>(frame->arena)};
    const bool holds = *static_cast<const uint8_t *>(static_cast<const void *>(frame->arena + ((batch * 32 + 63) / 64) * 64)) != 0;
    holds ? run_cond_true(frame, given, made, room) : run_cond_false(frame, given, made, room);
    end_record(frame, 2, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 2);
  // 3 scalar_tensor: branch.py:13
  {
    const uint64_t token = begin_record(frame, 3);
    Task<1> task = {frame, {static_cast<const void *>(frame->arena + ((batch * 32 + 63) / 64) * 64)}};
    dispatch(frame, 1, 1, k3_scalar_tensor, &task);
    end_record(frame, 3, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 3);
  // 4 while_loop: branch.py:16
  {
    const uint64_t token = begin_record(frame, 4);
    char *const room = static_cast<char *>(static_cast<void *>(frame->arena + ((batch * 32 + 63) / 64) * 64 + 128));
    const void *given[] = {static_cast<const void *>(frame->arena + ((batch * 32 + 63) / 64) * 64), static_cast<const void *>(frame->arena), frame->inputs[1]};
    void *const first[] = {static_cast<void *>(frame->arena + ((batch * 32 + 63) / 64) * 64 + 64), frame->outputs[0]}, *const second[] = {room + 64, room + 128}, *const holds[] = {room};
    for (void *const *made = first;; made = made == first ? second : first) {
      if (run_loop_cond(frame, given, holds, room + ((batch * 32 + 63) / 64) * 64 + 128) != 0 || *static_cast<const uint8_t *>(holds[0]) == 0) break;
      if (run_loop_body(frame, given, made, room + ((batch * 32 + 63) / 64) * 64 + 128) != 0) break;
      for (int i0 = 0; i0 < 2; ++i0) given[i0] = made[i0];
    }
    if (given[0] != first[0]) memcpy(first[0], given[0], static_cast<size_t>(8));
    if (given[1] != first[1]) memcpy(first[1], given[1], static_cast<size_t>(batch * 32));
    end_record(frame, 4, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  return 0;
}

}  // namespace SEALIFT_NS
