// Scaled dot-product attention, f32: the interface that generated code includes.
//
//   out[b, h, s, :] = softmax_t(scale * q[b, h, s, :] . k[b, h / (heads / kv_heads), t, :] + mask[b, h, s, t]) v[b, .., t, :]
//
// Every tensor has its own strides, so [batch, seq, heads * dim] layouts need no transpose. No [s, t] matrix is made. As in eager, a row whose keys
// are all masked, or that has none, is zero; is_causal lets query i see keys j <= i. Keys at the end that a mask hides from every query are not read:
// what lies in the unused part of a cache costs nothing and, other than in eager, spreads no NaN.
// Results are bitwise the same for any number of workers.
#ifndef SEALIFT_KERNELS_ATTENTION_ATTENTION_H
#define SEALIFT_KERNELS_ATTENTION_ATTENTION_H

#include <stdint.h>

#include "../simd/isa.h"

struct sealift_frame;

namespace SEALIFT_NS {

enum AttentionMask : int32_t {
  kMaskNone = 0,
  kMaskBool = 1, // bytes; zero: the query does not see the key
  kMaskFloat = 2 // added to the scaled score
};

struct AttentionF32 {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const void *mask = nullptr;
  float *out = nullptr;
  int32_t mask_kind = kMaskNone;
  int32_t is_causal = 0;
  float scale = 1.0f;
  int64_t batch = 1, heads = 1, kv_heads = 1; // kv_heads divides heads
  int64_t queries = 0, keys = 0;
  int64_t head_dim = 0, value_dim = 0;
  int64_t q_strides[4] = {0, 0, 0, 1}; // batch, head, query, element; in elements of the tensor
  int64_t k_strides[4] = {0, 0, 0, 1};
  int64_t v_strides[4] = {0, 0, 0, 1};
  int64_t out_strides[4] = {0, 0, 0, 1};
  int64_t mask_strides[4] = {0, 0, 0, 0}; // batch, head, query, key; 0 broadcasts
};

struct AttentionF32Task {
  AttentionF32 attention;
  char *scratch = nullptr; // worker w's part is at scratch + w * scratch_stride_bytes
  int64_t scratch_stride_bytes = 0;
};

// Bytes of scratch a worker needs, the same for every ISA: Q transposed, a block of scores, of K and of V, the sums, for up to 4 blocks of 32 queries.
static inline int64_t attention_f32_scratch_bytes(int64_t head_dim, int64_t value_dim) {
  const int64_t padded_value = (value_dim + 15) / 16 * 16;
  return 4 * (4 * 32 * (head_dim + padded_value + 2) + 32 * 128 + 128 * (head_dim + padded_value)) + 1024;
}

int64_t attention_f32_num_tasks(const AttentionF32Task *task);
void attention_f32_task(void *task, int64_t begin, int64_t end, int32_t worker);

// All of it: on the caller's thread where a fork would cost more than it saves, else through frame->host->parallel_for.
void attention_f32(sealift_frame *frame, const AttentionF32 &attention);

} // namespace SEALIFT_NS
#endif
