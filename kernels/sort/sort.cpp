// Sorting. An element becomes an unsigned key whose order is the element's, and an item: the key above, the position below. Items differ always, so
// any sort of them is stable, ten types need one sort for keys of 32 bits and one for 64, and the values are gathered once the positions are known.
//
// Whole rows: insertion up to kInsertion items, then a radix sort by the bytes of the key in which the row's elements differ. The keys of short rows
// (a router's choice among 8 experts) are made for several rows at once.
// The first `count` of many: blocks of keys are compared with the worst kept so far; what passes is inserted (count <= kSortFew), or waits until there
// are enough of them to sort (each sort then halves what is held, so that even a row that keeps improving costs two radix sorts).
#include "sort.h"

#include <string.h>

#include "../../contracts/sealift_model.h"

namespace SEALIFT_NS {
namespace {

typedef unsigned __int128 Wide;

constexpr int64_t kInsertion = 64;      // a radix sort's tables cost as much as so few insertions
constexpr int64_t kBlock = 64;          // keys made at once; rows no longer than this share a batch of kBatch
constexpr int64_t kBatch = 256;
constexpr int64_t kForkElements = 8192; // about 50 us of sorting: below, a fork and join costs more than it saves

// ---- keys: one loop per type, left to the vectoriser ---------------------------------------------------------------------------------------------

// Sign and magnitude to two's-complement order; infinity's bits are the greatest magnitude that is no NaN.
template <class Bits, class Key> void float_keys(const void *x, int64_t first, int64_t n, Bits infinity, Key *keys) {
  constexpr Bits sign = static_cast<Bits>(Bits(1) << (8 * sizeof(Bits) - 1));
  const char *from = static_cast<const char *>(x) + first * static_cast<int64_t>(sizeof(Bits));
  for (int64_t i = 0; i < n; i++) {
    Bits b;
    memcpy(&b, from + i * static_cast<int64_t>(sizeof(Bits)), sizeof b);
    const Bits magnitude = static_cast<Bits>(b & static_cast<Bits>(~sign));
    const Bits below = static_cast<Bits>(sign - magnitude), above = static_cast<Bits>(sign + magnitude); // both zeros: sign
    const Bits ordered = (b & sign) ? below : above;
    keys[i] = magnitude > infinity ? static_cast<Bits>(~Bits(0)) : ordered;
  }
}

template <class T, class Key> void int_keys(const void *x, int64_t first, int64_t n, Key offset, Key *keys) {
  const T *from = static_cast<const T *>(x) + first;
  for (int64_t i = 0; i < n; i++) keys[i] = static_cast<Key>(from[i]) + offset;
}

void make_keys(const SortRows &s, int64_t first, int64_t n, uint32_t *keys) {
  switch (s.dtype) {
  case SEALIFT_FLOAT32: float_keys<uint32_t>(s.x, first, n, 0x7f800000u, keys); break;
  case SEALIFT_BFLOAT16: float_keys<uint16_t>(s.x, first, n, 0x7f80, keys); break;
  case SEALIFT_FLOAT16: float_keys<uint16_t>(s.x, first, n, 0x7c00, keys); break;
  case SEALIFT_INT32: int_keys<int32_t>(s.x, first, n, 0x80000000u, keys); break;
  case SEALIFT_INT16: int_keys<int16_t>(s.x, first, n, 0x8000u, keys); break;
  case SEALIFT_INT8: int_keys<int8_t>(s.x, first, n, 0x80u, keys); break;
  case SEALIFT_UINT8: int_keys<uint8_t>(s.x, first, n, 0u, keys); break;
  default: // SEALIFT_BOOL: any non-zero byte is true
    for (int64_t i = 0; i < n; i++) keys[i] = static_cast<const uint8_t *>(s.x)[first + i] != 0;
  }
  if (s.descending)
    for (int64_t i = 0; i < n; i++) keys[i] = ~keys[i];
}

void make_keys(const SortRows &s, int64_t first, int64_t n, uint64_t *keys) {
  if (s.dtype == SEALIFT_FLOAT64) {
    float_keys<uint64_t>(s.x, first, n, UINT64_C(0x7ff0000000000000), keys);
  } else if (s.dtype == SEALIFT_INT64) {
    int_keys<int64_t>(s.x, first, n, UINT64_C(1) << 63, keys);
  } else { // a row of 2^32 elements or more
    uint32_t narrow[kBlock];  // such a row is read in blocks
    make_keys(s, first, n, narrow);
    for (int64_t i = 0; i < n; i++) keys[i] = narrow[i];
    return;
  }
  if (s.descending)
    for (int64_t i = 0; i < n; i++) keys[i] = ~keys[i];
}

// ---- items ---------------------------------------------------------------------------------------------------------------------------------------

struct Narrow {
  typedef uint32_t Key;
  typedef uint64_t Item;
  typedef uint32_t Count;
  static Item item(Key key, int64_t position) { return Item(key) << 32 | static_cast<uint32_t>(position); }
  static Key key(Item i) { return static_cast<Key>(i >> 32); }
  static int64_t position(Item i) { return static_cast<int64_t>(i & 0xffffffffu); }
};

struct Long {
  typedef uint64_t Key;
  typedef Wide Item;
  typedef uint64_t Count;
  static Item item(Key key, int64_t position) { return Item(key) << 64 | static_cast<uint64_t>(position); }
  static Key key(Item i) { return static_cast<Key>(i >> 64); }
  static int64_t position(Item i) { return static_cast<int64_t>(i); }
};

template <class Item> void insertion_sort(Item *items, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const Item moving = items[i];
    int64_t j = i;
    for (; j > 0 && moving < items[j - 1]; j--) items[j] = items[j - 1];
    items[j] = moving;
  }
}

// Sorts items[0, n), whose equal keys stand in the order of their positions, and says where they ended up: in items or in other.
template <class K> typename K::Item *sort_items(typename K::Item *items, typename K::Item *other, int64_t n) {
  typedef typename K::Item Item;
  if (n <= kInsertion) {
    insertion_sort(items, n);
    return items;
  }
  constexpr int digits = sizeof(typename K::Key);
  typename K::Count counts[digits][256];
  memset(counts, 0, sizeof counts);
  for (int64_t i = 0; i < n; i++) {
    const typename K::Key key = K::key(items[i]);
    for (int d = 0; d < digits; d++) counts[d][key >> (8 * d) & 255]++;
  }
  for (int d = 0; d < digits; d++) {
    typename K::Count *starts = counts[d], total = 0;
    if (starts[K::key(items[0]) >> (8 * d) & 255] == static_cast<typename K::Count>(n)) continue; // the same in every key
    for (int b = 0; b < 256; b++) {
      const typename K::Count here = starts[b];
      starts[b] = total;
      total += here;
    }
    for (int64_t i = 0; i < n; i++) other[starts[K::key(items[i]) >> (8 * d) & 255]++] = items[i];
    Item *const sorted = other;
    other = items;
    items = sorted;
  }
  return items;
}

// ---- rows ----------------------------------------------------------------------------------------------------------------------------------------

template <class K> typename K::Item *whole_row(const SortRows &s, int64_t start, typename K::Item *items) {
  typename K::Key keys[kBlock];
  for (int64_t i = 0; i < s.n; i += kBlock) {
    const int64_t size = s.n - i < kBlock ? s.n - i : kBlock;
    make_keys(s, start + i, size, keys);
    for (int64_t j = 0; j < size; j++) items[i + j] = K::item(keys[j], i + j);
  }
  return sort_items<K>(items, items + s.n, s.n);
}

// Calls take(item) for every element from `first` on whose key is below limit(); what take does may lower the limit. A later element of the limit's key
// comes after the one that set it, so it never belongs.
template <class K, class Limit, class Take> __attribute__((always_inline)) inline void scan_row(const SortRows &s, int64_t start, int64_t first, Limit limit, Take take) {
  typename K::Key keys[kBlock];
  for (int64_t i = first; i < s.n; i += kBlock) {
    const int64_t size = s.n - i < kBlock ? s.n - i : kBlock;
    make_keys(s, start + i, size, keys);
    const typename K::Key bar = limit();
    typename K::Key passing = 0;
    for (int64_t j = 0; j < size; j++) passing |= keys[j] < bar ? 1 : 0;
    if (!passing) continue;
    for (int64_t j = 0; j < size; j++)
      if (keys[j] < limit()) take(K::item(keys[j], i + j));
  }
}

// An item that is less than the last of kept[0, count), which falls out.
template <class Item> void insert(Item *kept, int64_t count, Item item) {
  int64_t j = count - 1;
  for (; j > 0 && item < kept[j - 1]; j--) kept[j] = kept[j - 1];
  kept[j] = item;
}

template <class K> typename K::Item *first_few(const SortRows &s, int64_t start, typename K::Item *kept) {
  typename K::Key keys[kSortFew];
  const int64_t count = s.count;
  make_keys(s, start, count, keys);
  for (int64_t j = 0; j < count; j++) kept[j] = K::item(keys[j], j);
  insertion_sort(kept, count);
  scan_row<K>(
      s, start, count, [&] { return K::key(kept[count - 1]); }, [&](typename K::Item item) { insert(kept, count, item); });
  return kept;
}

template <class K> typename K::Item *short_row(const SortRows &s, const typename K::Key *keys, typename K::Item *kept) {
  const int64_t some = s.count <= kSortFew ? s.count : s.n;
  for (int64_t j = 0; j < some; j++) kept[j] = K::item(keys[j], j);
  insertion_sort(kept, some);
  for (int64_t j = some; j < s.n; j++)
    if (keys[j] < K::key(kept[some - 1])) insert(kept, some, K::item(keys[j], j));
  return kept;
}

template <class K> typename K::Item *first_of_many(const SortRows &s, int64_t start, typename K::Item *items, int64_t held_most) {
  typedef typename K::Item Item;
  typename K::Key bar = static_cast<typename K::Key>(~typename K::Key(0));
  Item *other = items + held_most;
  int64_t held = 0;
  const auto select = [&] {
    Item *const sorted = sort_items<K>(items, other, held);
    if (sorted != items) other = items, items = sorted;
    held = s.count;
    bar = K::key(items[s.count - 1]);
  };
  typename K::Key keys[kBlock];
  int64_t i = 0;
  for (; i < held_most; i += kBlock) { // all of the first ones, so that the scan begins with a bar
    const int64_t size = held_most - i < kBlock ? held_most - i : kBlock;
    make_keys(s, start + i, size, keys);
    for (int64_t j = 0; j < size; j++) items[i + j] = K::item(keys[j], i + j);
  }
  held = held_most;
  select();
  scan_row<K>(
      s, start, held_most, [&] { return bar; },
      [&](Item item) {
        items[held++] = item;
        if (held == held_most) select();
      });
  if (held > s.count) select();
  return items;
}

template <class Raw> void gather_values(const void *x, void *values, const int64_t *indices, int64_t count) {
  for (int64_t j = 0; j < count; j++) static_cast<Raw *>(values)[j] = static_cast<const Raw *>(x)[indices[j]];
}

template <class K> void sort_range(const SortRows &s, int64_t begin, int64_t end, char *scratch) {
  typedef typename K::Item Item;
  Item *const items = reinterpret_cast<Item *>((reinterpret_cast<uintptr_t>(scratch) + 15) / 16 * 16);
  const int64_t held = sort_rows_held(s.n, s.count);
  typename K::Key keys[kBatch];
  const int64_t batch = s.n > 0 && s.n <= kBlock ? kBatch / s.n : 0;
  for (int64_t row = begin; row < end; row++) {
    const int64_t start = row * s.n, to = row * s.count;
    const Item *sorted;
    if (batch) {
      const int64_t at = (row - begin) % batch;
      if (at == 0) make_keys(s, start, (end - row < batch ? end - row : batch) * s.n, keys);
      sorted = short_row<K>(s, keys + at * s.n, items);
    } else if (held == s.n) sorted = whole_row<K>(s, start, items);
    else if (s.count <= kSortFew) sorted = first_few<K>(s, start, items);
    else sorted = first_of_many<K>(s, start, items, held);
    int64_t *const indices = s.indices + to;
    for (int64_t j = 0; j < s.count; j++) indices[j] = K::position(sorted[j]);
    const char *const x = static_cast<const char *>(s.x);
    char *const values = static_cast<char *>(s.values);
    switch (s.dtype) {
    case SEALIFT_FLOAT64:
    case SEALIFT_INT64: gather_values<uint64_t>(x + start * 8, values + to * 8, indices, s.count); break;
    case SEALIFT_FLOAT32:
    case SEALIFT_INT32: gather_values<uint32_t>(x + start * 4, values + to * 4, indices, s.count); break;
    case SEALIFT_BFLOAT16:
    case SEALIFT_FLOAT16:
    case SEALIFT_INT16: gather_values<uint16_t>(x + start * 2, values + to * 2, indices, s.count); break;
    default: gather_values<uint8_t>(x + start, values + to, indices, s.count);
    }
  }
}

} // namespace

void sort_rows_task(void *task, int64_t begin, int64_t end, int32_t worker) {
  const SortRowsTask &t = *static_cast<const SortRowsTask *>(task);
  char *const scratch = t.scratch + worker * t.scratch_stride_bytes;
  const bool is_long = t.sort.dtype == SEALIFT_FLOAT64 || t.sort.dtype == SEALIFT_INT64 || t.sort.n > INT64_C(0xffffffff);
  if (is_long) sort_range<Long>(t.sort, begin, end, scratch);
  else sort_range<Narrow>(t.sort, begin, end, scratch);
}

void sort_rows(sealift_frame *frame, const SortRows &sort) {
  if (sort.rows <= 0 || sort.count <= 0) return;
  SortRowsTask task;
  task.sort = sort;
  task.scratch = frame->scratch;
  task.scratch_stride_bytes = frame->scratch_stride_bytes;
  if (frame->num_workers <= 1 || sort.rows == 1 || sort.rows * sort.n < kForkElements) return sort_rows_task(&task, 0, sort.rows, 0);
  const int64_t grain = sort.n >= kForkElements / 4 ? 1 : kForkElements / 4 / sort.n;
  frame->host->parallel_for(frame, sort.rows, grain, sort_rows_task, &task);
}

} // namespace SEALIFT_NS
