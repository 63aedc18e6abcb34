// Attention against its definition: query and key counts around every block, head sizes, layouts, masks, grouped heads, NaN and infinity, worker counts.
#include "../attention/attention.h"
#include "../attention/attention_naive.h"

#include <initializer_list>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

enum Layout { kHeadsFirst, kHeadsInside, kElementsApart };                // [b, h, s, d]; [b, s, h, d]; [b, h, d, s]
enum MaskShape { kFull, kPerKey, kPerQueryShared, kPerHead, kTransposed, kLower }; // which strides are zero or swapped; kLower: a causal mask

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, head_dim, value_dim;
  Layout layout;
  int32_t mask_kind, causal;
  MaskShape mask_shape = kFull;
  bool hostile = false;
  bool hide_rows = false; // some rows see no key
};

void set_strides(int64_t *strides, Layout layout, int64_t heads, int64_t rows, int64_t width) {
  if (layout == kHeadsFirst) strides[0] = heads * rows * width, strides[1] = rows * width, strides[2] = width, strides[3] = 1;
  if (layout == kHeadsInside) strides[0] = heads * rows * width, strides[1] = width, strides[2] = heads * width, strides[3] = 1;
  if (layout == kElementsApart) strides[0] = heads * rows * width, strides[1] = rows * width, strides[2] = 1, strides[3] = rows;
}

void run_case(const Case &t, Random &random) {
  AttentionF32 a;
  a.batch = t.batch, a.heads = t.heads, a.kv_heads = t.kv_heads, a.queries = t.queries, a.keys = t.keys;
  a.head_dim = t.head_dim, a.value_dim = t.value_dim, a.is_causal = t.causal, a.mask_kind = t.mask_kind;
  a.scale = t.head_dim ? 1.0f / sqrtf(static_cast<float>(t.head_dim)) : 1.0f;
  Guarded<float> q(t.batch * t.heads * t.queries * t.head_dim), k(t.batch * t.kv_heads * t.keys * t.head_dim), v(t.batch * t.kv_heads * t.keys * t.value_dim);
  Guarded<float> out(t.batch * t.heads * t.queries * t.value_dim), first(out.size());
  random.fill(q, 3.0f), random.fill(k, 1.5f), random.fill(v, 1.0f);
  set_strides(a.q_strides, t.layout, t.heads, t.queries, t.head_dim);
  set_strides(a.k_strides, t.layout, t.kv_heads, t.keys, t.head_dim);
  set_strides(a.v_strides, t.layout, t.kv_heads, t.keys, t.value_dim);
  set_strides(a.out_strides, t.layout, t.heads, t.queries, t.value_dim);
  const int64_t mask_b = t.mask_shape == kPerQueryShared ? 1 : t.batch, mask_h = t.mask_shape == kPerHead ? t.heads : 1;
  const int64_t mask_s = t.mask_shape == kPerKey ? 1 : t.queries;
  Guarded<float> mask_float(mask_b * mask_h * mask_s * t.keys);
  Guarded<uint8_t> mask_bool(mask_float.size());
  a.mask_strides[0] = mask_b > 1 ? mask_h * mask_s * t.keys : 0;
  a.mask_strides[1] = mask_h > 1 ? mask_s * t.keys : 0;
  a.mask_strides[2] = mask_s > 1 ? t.keys : 0, a.mask_strides[3] = 1;
  if (t.mask_shape == kTransposed) a.mask_strides[2] = 1, a.mask_strides[3] = t.queries;
  const int64_t hidden_row = t.queries > 1 ? random.below(t.queries) : 0;
  for (int64_t i = 0; i < mask_float.size(); i++) {
    mask_float[i] = random.below(5) == 0 ? -INFINITY : random.uniform(1.0f);
    mask_bool[i] = random.below(3) != 0;
    if (t.mask_shape == kLower) {
      const bool seen = i % t.keys <= i / t.keys % mask_s + t.keys - t.queries;
      mask_float[i] = seen ? (i % 7 == 0 ? -0.0f : 0.0f) : -INFINITY;
      mask_bool[i] = static_cast<uint8_t>(seen ? 1 + (i % 1999 == 0) : 0); // any byte but 0 is true
      continue;
    }
    const int64_t row = t.mask_shape == kTransposed ? i % t.queries : mask_s > 1 ? i / t.keys % mask_s : 0;
    if (t.hide_rows && (mask_s == 1 || row == hidden_row)) mask_float[i] = -INFINITY, mask_bool[i] = 0;
  }
  a.q = q.data, a.k = k.data, a.v = v.data, a.out = out.data;
  a.mask = t.mask_kind == kMaskBool ? static_cast<const void *>(mask_bool.data) : mask_float.data;
  if (t.hostile && q.size()) {
    q[random.below(q.size())] = NAN;
    q[random.below(q.size())] = INFINITY;
  }

  char name[200];
  snprintf(name, sizeof name, "attention b=%ld h=%ld/%ld s=%ld t=%ld d=%ld dv=%ld layout=%d mask=%d/%d causal=%d hide=%d", (long)t.batch, (long)t.heads,
           (long)t.kv_heads, (long)t.queries, (long)t.keys, (long)t.head_dim, (long)t.value_dim, t.layout, t.mask_kind, t.mask_shape, t.causal, t.hide_rows);
  for (int32_t workers : {1, 2, 3, 4}) {
    for (int64_t i = 0; i < out.size(); i++) out[i] = 777.0f;
    const int64_t stride = (attention_f32_scratch_bytes(t.head_dim, t.value_dim) + 63) / 64 * 64;
    Guarded<char> scratch(stride * workers);
    AttentionF32Task task;
    task.attention = a;
    task.scratch = scratch.data, task.scratch_stride_bytes = stride;
    const int64_t count = attention_f32_num_tasks(&task);
    for (int32_t w = 0; w < workers; w++) {
      const int64_t begin = count * w / workers, end = count * (w + 1) / workers;
      if (begin < end) attention_f32_task(&task, begin, end, w);
    }
    if (workers == 1) memcpy(first.data, out.data, static_cast<size_t>(out.size()) * sizeof(float));
    else expect_true(memcmp(first.data, out.data, static_cast<size_t>(out.size()) * sizeof(float)) == 0, name);
  }
  Guarded<double> scores(t.keys), row(t.value_dim);
  for (int64_t b = 0; b < t.batch; b++)
    for (int64_t h = 0; h < t.heads; h++)
      for (int64_t s = 0; s < t.queries; s++) {
        naive::attention_row(a, b, h, s, scores.data, row.data);
        for (int64_t j = 0; j < t.value_dim; j++) {
          const float got = out[b * a.out_strides[0] + h * a.out_strides[1] + s * a.out_strides[2] + j * a.out_strides[3]];
          expect_close(got, row[j], 4e-6, name, (b * t.heads + h) * t.queries + s, j);
        }
      }
}

void run_threads(int64_t heads, int64_t queries, int64_t keys, int64_t dim) {
  Random random(5);
  Guarded<float> q(heads * queries * dim), k(heads * keys * dim), v(heads * keys * dim), one(q.size()), more(q.size());
  random.fill(q, 1.0f), random.fill(k, 1.0f), random.fill(v, 1.0f);
  for (int32_t workers : {1, 2, 4}) {
    TestHost host(workers, attention_f32_scratch_bytes(dim, dim));
    AttentionF32 a;
    a.heads = a.kv_heads = heads, a.queries = queries, a.keys = keys, a.head_dim = a.value_dim = dim, a.scale = 0.2f;
    set_strides(a.q_strides, kHeadsInside, heads, queries, dim), set_strides(a.k_strides, kHeadsInside, heads, keys, dim);
    set_strides(a.v_strides, kHeadsInside, heads, keys, dim), set_strides(a.out_strides, kHeadsInside, heads, queries, dim);
    a.q = q.data, a.k = k.data, a.v = v.data, a.out = workers == 1 ? one.data : more.data;
    for (int round = 0; round < 10; round++) attention_f32(&host.frame, a);
    if (workers > 1) expect_true(memcmp(one.data, more.data, static_cast<size_t>(one.size()) * sizeof(float)) == 0, "threads: bitwise equal");
  }
}

// A cache filled up to `filled`, and what is behind it NaN: the mask keeps it from being read. per_query: query s sees one key less than s + 1.
void run_cache(int32_t mask_kind, bool per_query, int64_t queries, int64_t keys, int64_t filled, int64_t dim, Random &random) {
  const int64_t heads = 4, kv_heads = 2;
  Guarded<float> q(heads * queries * dim), k(kv_heads * keys * dim), v(kv_heads * keys * dim), out(q.size());
  random.fill(q, 1.0f), random.fill(k, 1.0f), random.fill(v, 1.0f);
  for (int64_t h = 0; h < kv_heads; h++)
    for (int64_t i = filled * dim; i < keys * dim; i++) k[h * keys * dim + i] = v[h * keys * dim + i] = NAN;
  Guarded<uint8_t> seen((per_query ? queries : 1) * keys);
  Guarded<float> added(seen.size());
  for (int64_t i = 0; i < seen.size(); i++) {
    const int64_t limit = per_query ? filled - queries + 1 + i / keys : filled;
    seen[i] = i % keys < limit;
    added[i] = seen[i] ? 0.25f * static_cast<float>(i % 3) : -INFINITY;
  }
  AttentionF32 a;
  a.heads = heads, a.kv_heads = kv_heads, a.queries = queries, a.keys = keys, a.head_dim = a.value_dim = dim, a.scale = 0.3f;
  set_strides(a.q_strides, kHeadsInside, heads, queries, dim), set_strides(a.out_strides, kHeadsInside, heads, queries, dim);
  set_strides(a.k_strides, kHeadsFirst, kv_heads, keys, dim), set_strides(a.v_strides, kHeadsFirst, kv_heads, keys, dim);
  a.q = q.data, a.k = k.data, a.v = v.data, a.out = out.data;
  a.mask_kind = mask_kind, a.mask = mask_kind == kMaskBool ? static_cast<const void *>(seen.data) : added.data;
  a.mask_strides[2] = per_query ? keys : 0, a.mask_strides[3] = 1;
  TestHost host(2, attention_f32_scratch_bytes(dim, dim));
  attention_f32(&host.frame, a);
  AttentionF32 short_one = a;
  short_one.keys = filled; // every row's last key at most
  Guarded<double> scores(keys), row(dim);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t s = 0; s < queries; s++) {
      naive::attention_row(short_one, 0, h, s, scores.data, row.data);
      const float *got = out.data + h * a.out_strides[1] + s * a.out_strides[2];
      for (int64_t j = 0; j < dim; j++) expect_close(got[j], row[j], 4e-6, "a cache's unused rows", h * queries + s, j);
    }
}

} // namespace

int main() {
  Random random(1);
  for (int64_t queries : {0, 1, 2, 4, 5, 8, 9, 16, 17, 31, 32, 33, 40, 65, 130})
    for (int64_t keys : {0, 1, 2, 3, 5, 8, 17, 64, 127, 128, 129, 300})
      for (int64_t dim : {8, 32, 13}) {
        const int32_t mask_kind = static_cast<int32_t>(random.below(3)), causal = random.below(3) == 0;
        const MaskShape shape = static_cast<MaskShape>(random.below(5));
        const Layout layout = static_cast<Layout>(random.below(3));
        run_case({1, 2, 2, queries, keys, dim, dim, layout, mask_kind, causal, shape}, random);
      }
  for (int64_t dim : {1, 3, 16, 20, 64, 80, 128})
    for (int64_t value_dim : {1, 7, 32, 64, 100})
      for (int64_t queries : {1, 37}) run_case({1, 2, 1, queries, 70, dim, value_dim, static_cast<Layout>(random.below(3)), 0, 0}, random);
  for (int32_t mask_kind : {1, 2})
    for (int shape = 0; shape < 5; shape++)
      for (int64_t queries : {2, 35, 150}) {
        run_case({2, 6, 2, queries, 45, 32, 32, kHeadsInside, mask_kind, 0, static_cast<MaskShape>(shape), false, true}, random);
        run_case({2, 4, 4, queries, 260, 16, 24, kHeadsFirst, mask_kind, 0, static_cast<MaskShape>(shape), false, true}, random);
        run_case({2, 2, 1, queries, 140, 16, 16, kElementsApart, mask_kind, 1, static_cast<MaskShape>(shape)}, random);
      }
  for (int32_t mask_kind : {1, 2})
    for (int64_t queries : {5, 33, 64, 200})
      for (int64_t keys : {200, 259}) run_case({2, 2, 2, queries, keys, 16, 16, kHeadsInside, mask_kind, 0, kLower}, random);
  for (int64_t queries : {3, 50})
    for (int32_t causal : {0, 1}) run_case({1, 2, 2, queries, 200, 32, 32, kHeadsInside, 0, causal, kFull, true}, random);
  run_case({1, 1, 1, 5, 7, 0, 4, kHeadsFirst, 0, 0}, random);
  run_case({1, 1, 1, 5, 7, 4, 0, kHeadsFirst, 0, 0}, random);
  run_case({0, 1, 1, 5, 7, 4, 4, kHeadsFirst, 0, 0}, random);
  for (int32_t mask_kind : {1, 2})
    for (int64_t queries : {1, 4, 40})
      for (int64_t filled : {40, 41, 127, 128, 300, 511})
        for (bool per_query : {false, true}) run_cache(mask_kind, per_query, queries, 512, filled, 32, random);
  run_threads(12, 128, 128, 32);
  run_threads(3, 1, 500, 64);
  return finish_tests("attention");
}
