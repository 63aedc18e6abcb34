// block, one run: every kernel in order.
#include "kernels.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm.h"

namespace SEALIFT_NS {
namespace {

__attribute__((noinline, cold)) int32_t failed(sealift_frame *frame, int32_t kernel) {
  frame->error_kernel = kernel;
  return -1;
}

}  // namespace

int32_t run_block(sealift_frame *frame) {
  const int64_t batch = frame->sizes[0];
  const int64_t seq = frame->sizes[1];
  (void)batch;
  (void)seq;
  // 0 layer_norm: model.py:20 norm1
  {
    const uint64_t token = begin_record(frame, 0);
    Task<4> task = {frame, {frame->inputs[0], frame->weights[0], frame->weights[1], static_cast<const void *>(frame->arena)}};
    dispatch(frame, batch * seq, 50, k0_layer_norm, &task);
    end_record(frame, 0, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 0);
  // 1 linear: model.py:20 qkv
  {
    const uint64_t token = begin_record(frame, 1);
    GemmF32 gemm;
    gemm.m = batch * seq, gemm.n = 48, gemm.k = 16;
    gemm.a = static_cast<const float *>(static_cast<const void *>(frame->arena)), gemm.lda = 16;
    gemm.b = static_cast<const float *>(frame->weights[2]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[3]);
    gemm.c = static_cast<float *>(static_cast<void *>(frame->arena + batch * seq * 64)), gemm.ldc = 48;
    gemm_f32(frame, gemm);
    end_record(frame, 1, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 1);
  // 2 unbind_scaled_dot_product_attention: model.py:20; model.py:21
  {
    const uint64_t token = begin_record(frame, 2);
    AttentionF32 attention;
    attention.q = static_cast<const float *>(static_cast<const void *>(frame->arena + batch * seq * 64));
    set_strides(attention.q_strides, seq * 48, 8, 48, 1);
    attention.k = static_cast<const float *>(static_cast<const void *>(frame->arena + batch * seq * 64)) + 16;
    set_strides(attention.k_strides, seq * 48, 8, 48, 1);
    attention.v = static_cast<const float *>(static_cast<const void *>(frame->arena + batch * seq * 64)) + 32;
    set_strides(attention.v_strides, seq * 48, 8, 48, 1);
    attention.out = static_cast<float *>(static_cast<void *>(frame->arena));
    set_strides(attention.out_strides, seq * 16, 8, 16, 1);
    attention.mask = static_cast<const b8 *>(frame->inputs[1]), attention.mask_kind = kMaskBool;
    set_strides(attention.mask_strides, seq, 0, 0, 1);
    attention.batch = batch, attention.heads = 2, attention.kv_heads = 2;
    attention.queries = seq, attention.keys = seq;
    attention.head_dim = 8, attention.value_dim = 8;
    attention.scale = 0.35355339059327373f, attention.is_causal = 0;
    attention_f32(frame, attention);
    end_record(frame, 2, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 2);
  // 3 linear_add: model.py:22; model.py:22 proj
  {
    const uint64_t token = begin_record(frame, 3);
    GemmF32 gemm;
    gemm.m = batch * seq, gemm.n = 16, gemm.k = 16;
    gemm.a = static_cast<const float *>(static_cast<const void *>(frame->arena)), gemm.lda = 16;
    gemm.b = static_cast<const float *>(frame->weights[4]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[5]);
    gemm.residual = static_cast<const float *>(frame->inputs[0]), gemm.ldr = 16;
    gemm.c = static_cast<float *>(static_cast<void *>(frame->arena + batch * seq * 64)), gemm.ldc = 16;
    gemm_f32(frame, gemm);
    end_record(frame, 3, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 3);
  // 4 layer_norm: model.py:23 norm2
  {
    const uint64_t token = begin_record(frame, 4);
    Task<4> task = {frame, {static_cast<const void *>(frame->arena + batch * seq * 64), frame->weights[6], frame->weights[7], static_cast<const void *>(frame->arena)}};
    dispatch(frame, batch * seq, 50, k0_layer_norm, &task);
    end_record(frame, 4, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  // 5 linear_gelu: model.py:23 up; model.py:23
  {
    const uint64_t token = begin_record(frame, 5);
    GemmF32 gemm;
    gemm.m = batch * seq, gemm.n = 64, gemm.k = 16;
    gemm.a = static_cast<const float *>(static_cast<const void *>(frame->arena)), gemm.lda = 16;
    gemm.b = static_cast<const float *>(frame->weights[8]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[9]);
    gemm.activation = kActivationGeluErf;
    gemm.c = static_cast<float *>(static_cast<void *>(frame->arena + batch * seq * 256)), gemm.ldc = 64;
    gemm_f32(frame, gemm);
    end_record(frame, 5, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 5);
  // 6 linear_add: model.py:23 down; model.py:23
  {
    const uint64_t token = begin_record(frame, 6);
    GemmF32 gemm;
    gemm.m = batch * seq, gemm.n = 16, gemm.k = 64;
    gemm.a = static_cast<const float *>(static_cast<const void *>(frame->arena + batch * seq * 256)), gemm.lda = 64;
    gemm.b = static_cast<const float *>(frame->weights[10]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[11]);
    gemm.residual = static_cast<const float *>(static_cast<const void *>(frame->arena + batch * seq * 64)), gemm.ldr = 16;
    gemm.c = static_cast<float *>(frame->outputs[0]), gemm.ldc = 16;
    gemm_f32(frame, gemm);
    end_record(frame, 6, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 6);
  return 0;
}

}  // namespace SEALIFT_NS
