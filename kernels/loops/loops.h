// What generated loops are written in: lanes (all of a vector, or its first n), folds, checked indices, dispatch to the pool.
//
//   for_lanes(0, n, [&](int64_t j, auto lanes) { store(y + j, load(x + j, lanes) * splat(2.0f), lanes); });
#pragma once

#include "sealift_model.h"
#include "../simd/simd.h"

namespace SEALIFT_NS {
namespace {

// ---- lanes: how many of a vector's elements exist ----------------------------------------------------------------------------

struct All {};
struct Some {
  int64_t n;  // 0 < n < kLanes
};

SEALIFT_INLINE int64_t count(All) { return kLanes; }
SEALIFT_INLINE int64_t count(Some s) { return s.n; }

template <class S> SEALIFT_INLINE auto load(const S *p, All) { return load(p); }
template <class S> SEALIFT_INLINE auto load(const S *p, Some s) { return load_partial(p, s.n); }
template <class S, class V> SEALIFT_INLINE void store(S *p, V v, All) { store(p, v); }
template <class S, class V> SEALIFT_INLINE void store(S *p, V v, Some s) { store_partial(p, v, s.n); }
template <class S, class V> SEALIFT_INLINE void store_one(S *p, V v) { store_partial(p, v, 1); }
template <class S> SEALIFT_INLINE auto load_strided(const S *p, int64_t stride_elems, All) { return load_strided(p, stride_elems); }
template <class S> SEALIFT_INLINE auto load_strided(const S *p, int64_t stride_elems, Some s) { return load_strided_partial(p, stride_elems, s.n); }
template <class S, class V> SEALIFT_INLINE void store_strided(S *p, int64_t stride_elems, V v, All) { store_strided(p, stride_elems, v); }
template <class S, class V> SEALIFT_INLINE void store_strided(S *p, int64_t stride_elems, V v, Some s) { store_strided_partial(p, stride_elems, v, s.n); }
template <class S> SEALIFT_INLINE auto gather(const S *p, Vec<int64_t> index, All) { return gather(p, index); }
template <class S> SEALIFT_INLINE auto gather(const S *p, Vec<int64_t> index, Some s) { return gather_partial(p, index, s.n); }

// Lanes computed one by one: positions and conditions that are no vector arithmetic.
template <class L, class F> SEALIFT_INLINE Vec<int64_t> each_lane(int64_t first, L lanes, F position) {
  int64_t at[kLanes] = {};
  for (int64_t l = 0; l < count(lanes); ++l) at[l] = position(first + l);
  return load(at);
}
template <class L, class F> SEALIFT_INLINE Mask mask_each_lane(int64_t first, L lanes, F condition) {
  b8 holds[kLanes] = {};
  for (int64_t l = 0; l < count(lanes); ++l) holds[l].v = condition(first + l);
  return load(holds);
}
// base[index] where the mask holds, `other` elsewhere; the other lanes touch no memory.
template <class S, class V> SEALIFT_INLINE V gather_where(const S *base, Vec<int64_t> index, Mask where, V other) {
  S got[kLanes];
  for (int l = 0; l < kLanes; ++l)
    if (lane(where, l)) got[l] = base[lane(index, l)];
    else store_partial(got + l, other, 1);
  return load(got);
}

#define SEALIFT_LANES_INLINE __attribute__((always_inline))  // on the lambda of a loop over lanes

template <class F> SEALIFT_INLINE void for_lanes(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, All{});
  if (i < end) f(i, Some{end - i});
}

// ---- folds -------------------------------------------------------------------------------------------------------------------

template <class T> SEALIFT_INLINE T largest() { return Element<T>::is_float ? T(__builtin_inf()) : T(~(T(1) << (8 * sizeof(T) - 1))); }
template <> SEALIFT_INLINE float largest<float>() { return __builtin_inff(); }
template <> SEALIFT_INLINE double largest<double>() { return __builtin_inf(); }
template <> SEALIFT_INLINE uint8_t largest<uint8_t>() { return 255; }
template <class T> SEALIFT_INLINE T smallest() { return T(T(1) << (8 * sizeof(T) - 1)); }
template <> SEALIFT_INLINE float smallest<float>() { return -__builtin_inff(); }
template <> SEALIFT_INLINE double smallest<double>() { return -__builtin_inf(); }
template <> SEALIFT_INLINE uint8_t smallest<uint8_t>() { return 0; }

struct Sum {
  template <class T> static SEALIFT_INLINE Vec<T> identity() { return splat<T>(T(0)); }
  template <class V> static SEALIFT_INLINE V join(V a, V b) { return a + b; }
  template <class T> static SEALIFT_INLINE T join_one(T a, T b) { if constexpr (Element<T>::is_float) return a + b; else return T(uint64_t(a) + uint64_t(b)); }
  template <class T> static SEALIFT_INLINE T finish(Vec<T> v) { return reduce_add(v); }
};
struct Prod {
  template <class T> static SEALIFT_INLINE Vec<T> identity() { return splat<T>(T(1)); }
  template <class V> static SEALIFT_INLINE V join(V a, V b) { return a * b; }
  template <class T> static SEALIFT_INLINE T join_one(T a, T b) { if constexpr (Element<T>::is_float) return a * b; else return T(uint64_t(a) * uint64_t(b)); }
  template <class T> static SEALIFT_INLINE T finish(Vec<T> v) { return reduce_mul(v); }
};
struct Min {
  template <class T> static SEALIFT_INLINE Vec<T> identity() { return splat<T>(largest<T>()); }
  template <class V> static SEALIFT_INLINE V join(V a, V b) { return minimum(a, b); }
  template <class T> static SEALIFT_INLINE T join_one(T a, T b) { return b < a || b != b ? b : a; }
  template <class T> static SEALIFT_INLINE T finish(Vec<T> v) { return reduce_min(v); }
};
struct Max {
  template <class T> static SEALIFT_INLINE Vec<T> identity() { return splat<T>(smallest<T>()); }
  template <class V> static SEALIFT_INLINE V join(V a, V b) { return maximum(a, b); }
  template <class T> static SEALIFT_INLINE T join_one(T a, T b) { return b > a || b != b ? b : a; }
  template <class T> static SEALIFT_INLINE T finish(Vec<T> v) { return reduce_max(v); }
};
struct Any {
  template <class T> static SEALIFT_INLINE Mask identity() { return splat<bool>(false); }
  static SEALIFT_INLINE Mask join(Mask a, Mask b) { return a | b; }
  template <class T> static SEALIFT_INLINE bool finish(Mask m) { return any(m); }
};
struct AllOf {
  template <class T> static SEALIFT_INLINE Mask identity() { return splat<bool>(true); }
  static SEALIFT_INLINE Mask join(Mask a, Mask b) { return a & b; }
  template <class T> static SEALIFT_INLINE bool finish(Mask m) { return all(m); }
};

// Sums of blocks, joined as by pairwise summation (Higham 1993): the error grows with the logarithm of their number, as eager's does.
constexpr int64_t kSumBlock = 64;  // joins in one chain
template <class T> struct Pairwise {
  Vec<T> sums[48];      // of 2^i blocks each, the longest first
  int64_t blocks = 0;
  int top = 0;
  SEALIFT_INLINE void add(Vec<T> sum) {
    for (int64_t b = blocks++; b & 1; b >>= 1) sum = sums[--top] + sum;
    sums[top++] = sum;
  }
  SEALIFT_INLINE Vec<T> total() {
    Vec<T> sum = splat<T>(T(0));
    while (top > 0) sum = sums[--top] + sum;
    return sum;
  }
};
SEALIFT_INLINE int64_t end_of_block(int64_t begin, int64_t end, int64_t length = kSumBlock) { return end - begin < length ? end : begin + length; }

// Joins f(j, lanes) over [begin, n) into `start`. Four accumulators hide the latency of the join; their number depends on n only, so the result
// does not depend on who computes it.
template <class C, class T, class V, class F> SEALIFT_INLINE V fold_range(V start, int64_t begin, int64_t n, F f) {
  V acc0 = start, acc1 = C::template identity<T>(), acc2 = acc1, acc3 = acc1;
  int64_t j = begin;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    acc0 = C::join(acc0, f(j, All{}));
    acc1 = C::join(acc1, f(j + kLanes, All{}));
    acc2 = C::join(acc2, f(j + 2 * kLanes, All{}));
    acc3 = C::join(acc3, f(j + 3 * kLanes, All{}));
  }
  for (; j + kLanes <= n; j += kLanes) acc0 = C::join(acc0, f(j, All{}));
  if (j < n) acc1 = C::join(acc1, select(first_lanes(n - j), f(j, Some{n - j}), C::template identity<T>()));
  return C::join(C::join(acc0, acc1), C::join(acc2, acc3));
}
template <class C, class T> constexpr bool sums_floats() {
  if constexpr (is_same<C, Sum>) return Element<T>::is_float;
  else return false;
}
// The same over [0, n), of long sums block by block.
template <class C, class T, class V, class F> SEALIFT_INLINE V fold_lanes(V start, int64_t n, F f) {
  if constexpr (sums_floats<C, T>()) {
    Pairwise<T> sums;
    for (int64_t begin = 0;;) {
      const int64_t end = end_of_block(begin, n, kSumBlock * 4 * kLanes);
      const V sum = fold_range<C, T>(begin == 0 ? start : C::template identity<T>(), begin, end, f);
      if (begin == 0 && end == n) return sum;
      sums.add(sum);
      if (end == n) return sums.total();
      begin = end;
    }
  } else {
    return fold_range<C, T>(start, 0, n, f);
  }
}

// a + b, integers wrapping.
template <class T> SEALIFT_INLINE PartOf<T> add_parts(PartOf<T> a, PartOf<T> b) {
  if constexpr (Element<T>::is_float) return a + b;
  else return (PartOf<T>)((UnsignedPart<T>)a + (UnsignedPart<T>)b);
}
// part[l] + part[l - shift]; what lies before the first is 0.
template <class T, int shift, int... I> SEALIFT_INLINE PartOf<T> add_shifted(PartOf<T> part, Indices<I...>) {
  return add_parts<T>(part, __builtin_shufflevector(PartOf<T>{}, part, (I < shift ? I : int(sizeof...(I)) + I - shift)...));
}
template <class T> SEALIFT_INLINE PartOf<T> running_sums(PartOf<T> part) {
  constexpr int n = Vec<T>::kPartLanes;
  if constexpr (n > 1) part = add_shifted<T, 1>(part, FirstIndices<n>{});
  if constexpr (n > 2) part = add_shifted<T, 2>(part, FirstIndices<n>{});
  if constexpr (n > 4) part = add_shifted<T, 4>(part, FirstIndices<n>{});
  if constexpr (n > 8) part = add_shifted<T, 8>(part, FirstIndices<n>{});
  if constexpr (n > 16) part = add_shifted<T, 16>(part, FirstIndices<n>{});
  if constexpr (n > 32) part = add_shifted<T, 32>(part, FirstIndices<n>{});
  return part;
}

// Running results: out[l] is `before` joined with lanes 0 .. l; `before` becomes the last. Where the order of a sum does not show (integers, f32
// in f64) the sums are made within a register first, and a step waits for one addition, not for one a lane. Others go lane after lane, and each
// is stored as soon as it is known: a vector made of them again would wait for all of them to reach the cache.
template <class C, class S, class T, class L> SEALIFT_INLINE void scan_lanes(S *out, T &before, Vec<T> v, L lanes) {
  if constexpr (is_same<C, Sum> && (!Element<T>::is_float || (is_same<T, double> && is_same<S, float>))) {
    SEALIFT_EACH_PART(Vec<T>::kParts, const PartOf<T> sums = running_sums<T>(v.part[i]); v.part[i] = add_parts<T>(before - PartOf<T>{}, sums);
                      before = Sum::join_one(before, sums[Vec<T>::kPartLanes - 1]));
    store(out, cast<ComputeOf<S>>(v), lanes);
  } else {
    T at[kLanes], running = before;
    store(at, v);
    for (int64_t l = 0; l < count(lanes); ++l) {
      running = C::join_one(running, at[l]);
      if constexpr (is_same<S, T>) out[l] = running;
      else if constexpr (is_same<S, float>) out[l] = static_cast<float>(running);
      else store_one(out + l, splat<T>(running));
    }
    before = running;
  }
}

// The winner so far and its position: the first of equals, NaN before all; of several NaN the first, or the last.
template <class T> struct Best {
  Vec<T> value;
  Vec<int64_t> position = splat<int64_t>(0);
};
struct ArgMax {
  template <class T> static SEALIFT_INLINE Best<T> start() { return {splat<T>(smallest<T>())}; }
  template <class T> static SEALIFT_INLINE Mask beats(Vec<T> a, Vec<T> b) { return a > b; }
};
struct ArgMin {
  template <class T> static SEALIFT_INLINE Best<T> start() { return {splat<T>(largest<T>())}; }
  template <class T> static SEALIFT_INLINE Mask beats(Vec<T> a, Vec<T> b) { return a < b; }
};
struct ArgMaxLastNan : ArgMax {
  template <class T> static SEALIFT_INLINE Mask beats(Vec<T> a, Vec<T> b) { return (a > b) | isnan(a); }
};
template <class C, class T> SEALIFT_INLINE Best<T> challenge(Best<T> best, Vec<T> v, int64_t position) {
  const Mask wins = C::template beats<T>(v, best.value) | (isnan(v) & ~isnan(best.value));
  return {select(wins, v, best.value), select(wins, splat<int64_t>(position), best.position)};
}

// ---- errors inside a run -----------------------------------------------------------------------------------------------------

inline __attribute__((noinline, cold)) void raise(sealift_frame *frame, int32_t error, int64_t value, int64_t bound) {
  int32_t none = SEALIFT_RUN_OK;  // the first error of a run is the one reported
  if (__atomic_compare_exchange_n(&frame->error, &none, error, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    frame->error_value = value;
    frame->error_bound = bound;
  }
}
SEALIFT_INLINE bool has_failed(const sealift_frame *frame) { return __atomic_load_n(&frame->error, __ATOMIC_RELAXED) != SEALIFT_RUN_OK; }

// The position that the user's `index` stands for.
template <class L> SEALIFT_INLINE Vec<int64_t> checked_position(sealift_frame *frame, Vec<int64_t> position, Vec<int64_t> index, int64_t size, L lanes) {
  const Mask bad = (position < splat<int64_t>(0)) | (position >= splat<int64_t>(size));
  if (__builtin_expect(any_partial(bad, count(lanes)), 0)) {
    for (int l = 0; l < count(lanes); ++l)
      if (lane(bad, l)) raise(frame, SEALIFT_RUN_INDEX, lane(index, l), size);
    return select(bad, splat<int64_t>(0), position);
  }
  return position;
}

// An index as eager takes it: negative counts from the end. Out of range, the run fails and the lane reads element 0.
template <class L> SEALIFT_INLINE Vec<int64_t> check_index(sealift_frame *frame, Vec<int64_t> index, int64_t size, L lanes) {
  const Vec<int64_t> wrapped = select(index < splat<int64_t>(0), index + splat<int64_t>(size), index);
  return checked_position(frame, wrapped, index, size, lanes);
}
// An index that may not be negative.
template <class L> SEALIFT_INLINE Vec<int64_t> check_position(sealift_frame *frame, Vec<int64_t> index, int64_t size, L lanes) {
  return checked_position(frame, index, index, size, lanes);
}

template <class T, class L> SEALIFT_INLINE Vec<T> check_divisor(sealift_frame *frame, Vec<T> divisor, L lanes) {
  if (__builtin_expect(any_partial(divisor == splat<T>(T(0)), count(lanes)), 0)) raise(frame, SEALIFT_RUN_DIVIDE, 0, 0);
  return divisor;
}

// ---- sizes -------------------------------------------------------------------------------------------------------------------

SEALIFT_INLINE int64_t size_floor_div(int64_t a, int64_t b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
SEALIFT_INLINE int64_t size_mod(int64_t a, int64_t b) { return b == 0 ? 0 : a - size_floor_div(a, b) * b; }
SEALIFT_INLINE int64_t size_min(int64_t a, int64_t b) { return a < b ? a : b; }
SEALIFT_INLINE int64_t size_max(int64_t a, int64_t b) { return a > b ? a : b; }

// ---- dispatch ----------------------------------------------------------------------------------------------------------------

template <int n> struct Task {  // what a kernel gets: the run, and where its buffers are
  sealift_frame *frame;
  const void *buffer[n];
};

constexpr int64_t kForkElements = 32768;  // below, a fork and join costs more than it saves
constexpr int64_t kGrainElements = 4096;

// fn over [0, count) rows of row_elements each, on the pool where that pays.
SEALIFT_INLINE void dispatch(sealift_frame *frame, int64_t count, int64_t row_elements, sealift_task_fn fn, void *task) {
  if (count <= 0) return;
  const int64_t elements = row_elements > 0 ? row_elements : 1;
  if (frame->num_workers == 1 || count == 1 || count * elements < kForkElements) return fn(task, 0, count, 0);
  const int64_t grain = elements >= kGrainElements ? 1 : kGrainElements / elements;
  frame->host->parallel_for(frame, count, grain, fn, task);
}

template <int n, class... D> SEALIFT_INLINE void set_strides(int64_t (&strides)[n], D... values) {
  static_assert(sizeof...(D) == n, "one stride a dimension");
  const int64_t given[n] = {values...};
  for (int d = 0; d < n; ++d) strides[d] = given[d];
}

template <class T> SEALIFT_INLINE T *scratch_at(sealift_frame *frame, int32_t worker, int64_t offset_bytes) {
  return reinterpret_cast<T *>(frame->scratch + worker * frame->scratch_stride_bytes + offset_bytes);
}

// A kernel's record point: a decrement and a branch when nothing listens. `end_record` takes what `begin_record` gave.
SEALIFT_INLINE uint64_t begin_record(sealift_frame *frame, int32_t kernel_id) {
  return __builtin_expect(--frame->countdown != 0, 1) ? 0 : frame->host->record_begin(frame, kernel_id);
}
SEALIFT_INLINE void end_record(sealift_frame *frame, int32_t kernel_id, uint64_t token) {
  if (__builtin_expect(token != 0, 0)) frame->host->record_end(frame, kernel_id, token);
}

}  // namespace
}  // namespace SEALIFT_NS
