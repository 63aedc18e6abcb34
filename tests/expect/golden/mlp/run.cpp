// mlp, one run: every kernel in order.
#include "kernels.h"
#include "kernels/gemm/gemm.h"

namespace SEALIFT_NS {
namespace {

__attribute__((noinline, cold)) int32_t failed(sealift_frame *frame, int32_t kernel) {
  frame->error_kernel = kernel;
  return -1;
}

}  // namespace

int32_t run_mlp(sealift_frame *frame) {
  const int64_t batch = frame->sizes[0];
  (void)batch;
  // 0 linear_relu: model.py:10 fc1; model.py:10 relu
  {
    const uint64_t token = begin_record(frame, 0);
    GemmF32 gemm;
    gemm.m = batch, gemm.n = 16, gemm.k = 10;
    gemm.a = static_cast<const float *>(frame->inputs[0]), gemm.lda = 10;
    gemm.b = static_cast<const float *>(frame->weights[0]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[1]);
    gemm.activation = kActivationRelu;
    gemm.c = static_cast<float *>(static_cast<void *>(frame->arena)), gemm.ldc = 16;
    gemm_f32(frame, gemm);
    end_record(frame, 0, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 0);
  // 1 linear_sigmoid: model.py:11 fc2; model.py:11 sigmoid
  {
    const uint64_t token = begin_record(frame, 1);
    GemmF32 gemm;
    gemm.m = batch, gemm.n = 1, gemm.k = 16;
    gemm.a = static_cast<const float *>(static_cast<const void *>(frame->arena)), gemm.lda = 16;
    gemm.b = static_cast<const float *>(frame->weights[2]), gemm.b_layout = kBPanel32;
    gemm.bias = static_cast<const float *>(frame->weights[3]);
    gemm.activation = kActivationSigmoid;
    gemm.c = static_cast<float *>(frame->outputs[0]), gemm.ldc = 1;
    gemm_f32(frame, gemm);
    end_record(frame, 1, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 1);
  return 0;
}

}  // namespace SEALIFT_NS
