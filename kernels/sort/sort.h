// Rows in order, with the positions their elements came from: the interface that generated code includes.
//
//   values[r, j] = x[r, indices[r, j]], j < count, ascending or descending, equals in the order of their positions both ways
//
// NaN is greater than every number (last ascending, first descending), all NaNs are equal, and so are 0.0 and -0.0, as eager has them. Every order is
// the same for any number of workers and on every ISA: no two elements of a row compare equal once their positions are compared too.
#ifndef SEALIFT_KERNELS_SORT_SORT_H
#define SEALIFT_KERNELS_SORT_SORT_H

#include <stdint.h>

#include "../simd/isa.h"

struct sealift_frame;

namespace SEALIFT_NS {

// Row-major and contiguous. x may not overlap values or indices.
struct SortRows {
  const void *x = nullptr;    // [rows, n]
  void *values = nullptr;     // [rows, count]
  int64_t *indices = nullptr; // [rows, count]
  int64_t rows = 0, n = 0, count = 0; // count <= n
  int32_t dtype = 0;          // sealift_dtype
  int32_t descending = 0;
};

struct SortRowsTask {
  SortRows sort;
  char *scratch = nullptr; // worker w's part is at scratch + w * scratch_stride_bytes
  int64_t scratch_stride_bytes = 0;
};

constexpr int64_t kSortFew = 16;      // so few are kept in order while a row is read
constexpr int64_t kSortBacklog = 256; // candidates that wait for a selection, at least

// How many elements of a row are in scratch at once: twice this, to be exact.
static inline int64_t sort_rows_held(int64_t n, int64_t count) {
  if (count <= kSortFew && count < n) return kSortFew;
  const int64_t backlog = count > kSortBacklog ? count : kSortBacklog;
  return count <= n / 8 && count + backlog < n ? count + backlog : n;
}

// Bytes of scratch a worker needs, the same for every ISA.
static inline int64_t sort_rows_scratch_bytes(int64_t n, int64_t count, int32_t dtype) {
  const bool wide = dtype == 1 || dtype == 3 || n > INT64_C(0xffffffff); // SEALIFT_FLOAT64, SEALIFT_INT64
  return 2 * sort_rows_held(n, count) * (wide ? 16 : 8) + 64;
}

void sort_rows_task(void *task, int64_t begin, int64_t end, int32_t worker); // rows [begin, end)

// All of it: on the caller's thread where a fork would cost more than it saves, else through frame->host->parallel_for.
void sort_rows(sealift_frame *frame, const SortRows &sort);

} // namespace SEALIFT_NS
#endif
