// Bags of embeddings. A bag's columns are held in registers while its rows pass; a table is larger than any cache, so rows are fetched ahead.
#include "bags.h"

#include "../../contracts/sealift_model.h"
#include "../simd/simd.h"

namespace SEALIFT_NS {
namespace {

constexpr int64_t kForkElements = 32768;  // of rows read: below, a fork and join costs more than it saves
constexpr int64_t kAhead = 8;             // rows between a fetch and its use: about as many misses as a core keeps in flight
constexpr int kLineBytes = 64;

struct BagsTask {
  const Bags *bags;
  sealift_frame *frame;
};

void raise_index(sealift_frame *frame, int64_t value, int64_t bound) {
  int32_t none = SEALIFT_RUN_OK;  // the first error of a run is the one reported
  if (__atomic_compare_exchange_n(&frame->error, &none, SEALIFT_RUN_INDEX, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    frame->error_value = value;
    frame->error_bound = bound;
  }
}

template <class V>
SEALIFT_INLINE V join(int32_t mode, V total, V value) { return mode == kBagMax ? maximum(total, value) : total + value; }

SEALIFT_INLINE double lowest(double) { return -__builtin_inf(); }
SEALIFT_INLINE float lowest(float) { return -__builtin_inff(); }

// kVectors vectors of a bag's columns, the last of them `tail` lanes wide. `rows` counts what is there and no padding.
template <class S, class I, int kVectors, bool kWeighted>
SEALIFT_INLINE void columns(const Bags &b, int64_t begin, int64_t end, int64_t first, int64_t tail, int64_t rows, S *out) {
  typedef ComputeOf<S> T;
  const S *table = static_cast<const S *>(b.table) + first;
  const I *indices = static_cast<const I *>(b.indices);
  const S *weights = static_cast<const S *>(b.weights);
  const T start = b.mode == kBagMax && rows > 0 ? lowest(T(0)) : T(0);
  Vec<T> total[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) total[v] = splat<T>(start);
  for (int64_t p = begin; p < end; p++) {
    const int64_t ahead = p + kAhead < b.count ? p + kAhead : p;
    const char *next = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(table) + static_cast<uintptr_t>(indices[ahead]) * static_cast<uintptr_t>(b.table_stride) * sizeof(S));
#pragma GCC unroll 8
    for (int line = 0; line * kLineBytes < kVectors * kLanes * int(sizeof(S)); line++) __builtin_prefetch(next + line * kLineBytes, 0, 3);
    const int64_t index = indices[p];
    if (index == b.padding_idx) continue;
    const S *row = table + index * b.table_stride;
    Vec<T> weight;
    if constexpr (kWeighted) weight = splat_load(weights + p);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      Vec<T> x = v + 1 == kVectors && tail < kLanes ? load_partial(row + v * kLanes, tail) : load(row + v * kLanes);
      if constexpr (kWeighted) x = x * weight;
      total[v] = join(b.mode, total[v], x);
    }
  }
  const Vec<T> divisor = splat<T>(T(rows > 0 ? rows : 1));
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) {
    const Vec<T> y = b.mode == kBagMean ? total[v] / divisor : total[v];
    if (v + 1 == kVectors && tail < kLanes)
      store_partial(out + first + v * kLanes, y, tail);
    else
      store(out + first + v * kLanes, y);
  }
}

template <class S, class I, bool kWeighted>
void bag(const Bags &b, int64_t begin, int64_t end, int64_t rows, S *out) {
  int64_t first = 0;
  for (; b.width - first >= 8 * kLanes; first += 8 * kLanes) columns<S, I, 8, kWeighted>(b, begin, end, first, kLanes, rows, out);
  for (; b.width - first >= 4 * kLanes; first += 4 * kLanes) columns<S, I, 4, kWeighted>(b, begin, end, first, kLanes, rows, out);
  for (; first < b.width; first += kLanes) {
    const int64_t left = b.width - first;
    columns<S, I, 1, kWeighted>(b, begin, end, first, left < kLanes ? left : kLanes, rows, out);
  }
}

int64_t offset_at(const Bags &b, int64_t k) {
  return b.offset_dtype == SEALIFT_INT32 ? static_cast<const int32_t *>(b.offsets)[k] : static_cast<const int64_t *>(b.offsets)[k];
}

template <class S, class I>
void some_bags(void *arg, int64_t first, int64_t last, int32_t) {
  const BagsTask &task = *static_cast<const BagsTask *>(arg);
  const Bags &b = *task.bags;
  const I *indices = static_cast<const I *>(b.indices);
  for (int64_t k = first; k < last; k++) {
    const int64_t begin = offset_at(b, k), end = k + 1 < b.bags || b.has_end ? offset_at(b, k + 1) : b.count;
    if (k == 0 && begin != 0) return raise_index(task.frame, begin, 1);  // the first bag begins with the first index
    if (begin < 0 || begin > b.count) return raise_index(task.frame, begin, b.count + 1);
    if (end < begin || end > b.count) return raise_index(task.frame, end, b.count + 1);
    int64_t rows = end - begin;
    for (int64_t p = begin; p < end; p++) {
      const int64_t index = indices[p];
      if (__builtin_expect(static_cast<uint64_t>(index) >= static_cast<uint64_t>(b.rows), 0)) return raise_index(task.frame, index, b.rows);
      rows -= index == b.padding_idx;
    }
    S *out = static_cast<S *>(b.out) + k * b.out_stride;
    if (b.weights)
      bag<S, I, true>(b, begin, end, rows, out);
    else
      bag<S, I, false>(b, begin, end, rows, out);
  }
}

template <class S>
sealift_task_fn for_index(int32_t dtype) { return dtype == SEALIFT_INT32 ? some_bags<S, int32_t> : some_bags<S, int64_t>; }

sealift_task_fn for_types(const Bags &b) {
  switch (b.dtype) {
    case SEALIFT_FLOAT64: return for_index<double>(b.index_dtype);
    case SEALIFT_BFLOAT16: return for_index<bf16>(b.index_dtype);
    case SEALIFT_FLOAT16: return for_index<f16>(b.index_dtype);
    default: return for_index<float>(b.index_dtype);
  }
}

}  // namespace

void embedding_bags(sealift_frame *frame, const Bags &b) {
  if (b.has_end && b.bags >= 0) {  // eager's check of the last offset
    const int64_t end = offset_at(b, b.bags);
    if (end < 0 || end > b.count) return raise_index(frame, end, b.count + 1);
  }
  if (b.bags <= 0) return;
  BagsTask task{&b, frame};
  const sealift_task_fn fn = for_types(b);
  if (frame->num_workers <= 1 || b.bags == 1 || (b.count + b.bags) * b.width < kForkElements)
    fn(&task, 0, b.bags, 0);
  else
    frame->host->parallel_for(frame, b.bags, 1, fn, &task);
}

}  // namespace SEALIFT_NS
