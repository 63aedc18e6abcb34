// mixed, one run: every kernel in order.
#include "kernels.h"

namespace SEALIFT_NS {
namespace {

__attribute__((noinline, cold)) int32_t failed(sealift_frame *frame, int32_t kernel) {
  frame->error_kernel = kernel;
  return -1;
}

}  // namespace

int32_t run_mixed(sealift_frame *frame) {
  const int64_t n = frame->sizes[0];
  (void)n;
  // 0 embedding: model.py:30 table
  {
    const uint64_t token = begin_record(frame, 0);
    Task<3> task = {frame, {frame->inputs[1], frame->weights[0], static_cast<const void *>(frame->arena)}};
    dispatch(frame, n, 6, k0_embedding, &task);
    end_record(frame, 0, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 0);
  // 1 cat_to_amax_sub_and_more: model.py:31; model.py:32
  {
    const uint64_t token = begin_record(frame, 1);
    Task<4> task = {frame, {frame->inputs[0], static_cast<const void *>(frame->arena), static_cast<const void *>(frame->arena + ((n * 24 + 63) / 64) * 64), frame->outputs[0]}};
    dispatch(frame, n, 45, k1_cat_to_amax_sub_and_more, &task);
    end_record(frame, 1, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 1);
  // 2 gt_sum: model.py:33
  {
    const uint64_t token = begin_record(frame, 2);
    Task<2> task = {frame, {static_cast<const void *>(frame->arena + ((n * 24 + 63) / 64) * 64), frame->outputs[1]}};
    dispatch(frame, 1, n * 9, k2_gt_sum, &task);
    end_record(frame, 2, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 2);
  // 3 argmax: model.py:34
  {
    const uint64_t token = begin_record(frame, 3);
    Task<2> task = {frame, {static_cast<const void *>(frame->arena + ((n * 24 + 63) / 64) * 64), static_cast<const void *>(frame->arena + n * 64 + ((n * 24 + 63) / 64) * 64 + ((n * 8 + 63) / 64) * 64)}};
    dispatch(frame, 1, n * 9, k3_argmax, &task);
    end_record(frame, 3, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 3);
  // 4 to_add: model.py:34
  {
    const uint64_t token = begin_record(frame, 4);
    Task<3> task = {frame, {static_cast<const void *>(frame->arena + n * 64 + ((n * 24 + 63) / 64) * 64 + ((n * 8 + 63) / 64) * 64), frame->inputs[1], frame->outputs[2]}};
    dispatch(frame, n, 1, k4_to_add, &task);
    end_record(frame, 4, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 4);
  // 5 to_mul: model.py:35
  {
    const uint64_t token = begin_record(frame, 5);
    Task<2> task = {frame, {static_cast<const void *>(frame->arena), frame->outputs[3]}};
    dispatch(frame, 1, n * 6, k5_to_mul, &task);
    end_record(frame, 5, token);
  }
  if (__builtin_expect(frame->error != 0, 0)) return failed(frame, 5);
  return 0;
}

}  // namespace SEALIFT_NS
