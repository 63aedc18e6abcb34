// Bags of embeddings: sums, means and maxima of the rows of a table.
//
//   out[k] = combine over p in [offsets[k], offsets[k + 1]) of weights[p] * table[indices[p]]
//
// Rows are joined in their order, in f32 for half types (f64 for f64). An index of padding_idx is not there; an empty bag is 0; NaN wins a maximum.
// Results are the same for any number of workers: a bag is one worker's.
#ifndef SEALIFT_KERNELS_BAGS_BAGS_H
#define SEALIFT_KERNELS_BAGS_BAGS_H

#include <stdint.h>

#include "../simd/isa.h"

struct sealift_frame;

namespace SEALIFT_NS {

enum BagMode : int32_t { kBagSum = 0,
                         kBagMean = 1,
                         kBagMax = 2 };  // as torch numbers them

// Strides are in elements.
struct Bags {
  const void *table = nullptr;  // [rows, width], each row contiguous, of `dtype`
  int64_t table_stride = 0;
  const void *indices = nullptr;  // [count]
  const void *offsets = nullptr;  // [bags], or [bags + 1] with has_end: not descending, the first 0, none above count
  const void *weights = nullptr;  // [count] of `dtype`, or null
  void *out = nullptr;            // [bags, width], each row contiguous, of `dtype`
  int64_t out_stride = 0;
  int64_t rows = 0, width = 0, count = 0, bags = 0;
  int64_t padding_idx = -1;                   // negative: none
  int32_t dtype = 0;                          // sealift_dtype: a float's
  int32_t index_dtype = 3, offset_dtype = 3;  // SEALIFT_INT32 or SEALIFT_INT64
  int32_t mode = kBagSum, has_end = 0;
};

// All of it: on the caller's thread where a fork would cost more than it saves. An index or offset out of range sets frame->error.
void embedding_bags(sealift_frame *frame, const Bags &bags);

}  // namespace SEALIFT_NS
#endif
