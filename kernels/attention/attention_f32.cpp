// Scaled dot-product attention, f32, compiled once per ISA. Read bottom up.
//
// Queries go in blocks of 32, keys in equal blocks of at most kKeyBlock, with a running maximum and sum per query (Milakov and Gimelshein 2018). Scores
// are computed transposed, [key][query]: K is read by broadcasts from where it lies, the softmax is plain vector arithmetic with a query per lane, and
// the second product reads V as it lies. The only transposition is that of Q, once per block of queries. Up to kRowQueries queries take a path of their
// own with the lanes along the head (decoding). The order of every sum depends on the shape only.
#include "attention.h"

#include "../../contracts/sealift_model.h"
#include "../gemm/lanes.h"
#include "../gemm/tile.h"

namespace SEALIFT_NS {
namespace {

constexpr int kQueryBlock = 32;
constexpr int kQueryVectors = kQueryBlock / kWidth;
constexpr int kKeyBlock = 128;                 // scores of a block: 16 KB, half of L1
constexpr int kGroup = 4;                      // query blocks that share one copy of a block of V
constexpr int64_t kRowQueries = 4;
constexpr int64_t kForkWork = 1 << 16;         // multiply-adds below which a fork costs more than it saves
constexpr float kNoScore = -__builtin_inff();

SEALIFT_INLINE Lanes or_zero(Lanes maximum) { return maximum == broadcast(kNoScore) ? Lanes{} : maximum; } // so that -inf - maximum is not NaN

// e^x for x <= 0 or NaN. From -88 down the power of two is the one of exponent -127, whose bits are those of zero: no comparison is needed.
SEALIFT_INLINE Lanes exp_score(Lanes x) { return to_lanes(exp_normal(at_least(to_vec(x), -88.0f))); }

// ---- blocks of queries -----------------------------------------------------------------------------------------------------

// What is kept of a block of queries between blocks of keys.
struct QueryBlock {
  int64_t first, rows; // queries [first, first + rows)
  float *transposed;   // [head_dim][32], scaled
  float *sums;         // [32][value_stride]: sum of weight * V
  float *maximum, *weight; // [32] each
};

// sums[rows][vectors] = sums * rescale (or 0) + weights^T V: weights are [key][32], so a row's weights are a column.
template <int kRows, int kVectors>
void weigh_tile(const float *weights, const float *v, int64_t ldv, int64_t keys, float *sums, int64_t lds, const float *rescale) {
  Lanes sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) sum[i][j] = rescale ? load_lanes(sums + i * lds + j * kWidth) * broadcast(rescale[i]) : Lanes{};
#pragma GCC unroll 4
  for (; keys > 0; keys--) {
    if constexpr (kRows == 3 && kVectors == 4) {
      const Lanes every[3] = {broadcast(weights[0]), broadcast(weights[1]), broadcast(weights[2])};
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; j++) accumulate_three(sum, j, every, v + j * kWidth);
    } else {
      Lanes vv[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; j++) vv[j] = load_lanes(v + j * kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++) {
        Lanes w = broadcast(weights[i]);
#if SEALIFT_LANES == SEALIFT_DEFAULT_LANES
        if (kVectors > 1) asm("" : "+v"(w));
#endif
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; j++) sum[i][j] = multiply_add(w, vv[j], sum[i][j]);
      }
    }
    v += ldv;
    weights += kQueryBlock;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) store_lanes(sums + i * lds + j * kWidth, sum[i][j]);
}

using WeighTile = void (*)(const float *, const float *, int64_t, int64_t, float *, int64_t, const float *);
#define SEALIFT_WEIGH_ROW(rows) {weigh_tile<rows, 1>, weigh_tile<rows, 2>, weigh_tile<(rows <= kPanelRows ? rows : 1), kPanelVectors>}
const WeighTile kWeighTiles[kTileRows][3] = { // as kTileKernels
    SEALIFT_WEIGH_ROW(1), SEALIFT_WEIGH_ROW(2), SEALIFT_WEIGH_ROW(3), SEALIFT_WEIGH_ROW(4),
#if SEALIFT_LANES >= 8
    SEALIFT_WEIGH_ROW(5), SEALIFT_WEIGH_ROW(6),
#endif
#if SEALIFT_LANES >= 16
    SEALIFT_WEIGH_ROW(7), SEALIFT_WEIGH_ROW(8), SEALIFT_WEIGH_ROW(9), SEALIFT_WEIGH_ROW(10),
    SEALIFT_WEIGH_ROW(11), SEALIFT_WEIGH_ROW(12), SEALIFT_WEIGH_ROW(13), SEALIFT_WEIGH_ROW(14),
#endif
};
#undef SEALIFT_WEIGH_ROW

// How `count` rows are cut where `left` vectors of columns remain: tiles of a whole panel while there is one.
struct Shape {
  int64_t vectors, tiles;
  Split rows;
  SEALIFT_INLINE Shape(int64_t count, int64_t left)
      : vectors(left >= kPanelVectors ? kPanelVectors : kTileVectors), tiles(divide_up(count, vectors == kTileVectors ? kTileRows : kPanelRows)), rows(count, tiles) {}
  SEALIFT_INLINE int kernel(int64_t left) const { return vectors > kTileVectors ? 2 : left > 1 ? 1 : 0; } // of kTileKernels
};

// scores[key][32] become weights; maximum and weight are brought up to date, rescale gets the factor for what was summed before.
template <int kVectors>
void soften(float *scores, int64_t keys, float *maximum, float *weight, float *rescale) {
  Lanes most[kVectors], base[kVectors], sum[kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; j++) most[j] = load_lanes(maximum + j * kWidth);
  for (int64_t t = 0; t < keys; t++)
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; j++) most[j] = larger(most[j], load_lanes(scores + t * kQueryBlock + j * kWidth));
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; j++) {
    base[j] = or_zero(most[j]);
    const Lanes factor = exp_score(load_lanes(maximum + j * kWidth) - base[j]);
    store_lanes(maximum + j * kWidth, most[j]);
    store_lanes(rescale + j * kWidth, factor);
    sum[j] = load_lanes(weight + j * kWidth) * factor;
  }
  for (int64_t t = 0; t < keys; t++)
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; j++) {
      const Lanes w = exp_score(load_lanes(scores + t * kQueryBlock + j * kWidth) - base[j]);
      store_lanes(scores + t * kQueryBlock + j * kWidth, w);
      sum[j] += w;
    }
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; j++) store_lanes(weight + j * kWidth, sum[j]);
}

void soften_any(int64_t vectors, float *scores, int64_t keys, float *maximum, float *weight, float *rescale) {
  while (vectors > 0) { // 4, 2, 1 at a time
    int step = 1;
    if constexpr (kQueryVectors >= 4) {
      if (vectors >= 4) soften<4>(scores, keys, maximum, weight, rescale), step = 4;
    }
    if (step == 1 && vectors >= 2) soften<2>(scores, keys, maximum, weight, rescale), step = 2;
    if (step == 1) soften<1>(scores, keys, maximum, weight, rescale);
    vectors -= step;
    scores += step * kWidth, maximum += step * kWidth, weight += step * kWidth, rescale += step * kWidth;
  }
}

SEALIFT_INLINE float mask_value(const AttentionF32 &a, int64_t at) { // what is added to a score
  if (a.mask_kind == kMaskBool) return static_cast<const uint8_t *>(a.mask)[at] ? 0.0f : kNoScore;
  return static_cast<const float *>(a.mask)[at];
}

// Whether the mask hides the key: false, or -inf.
SEALIFT_INLINE bool is_hidden(const AttentionF32 &a, int64_t at) {
  return a.mask_kind == kMaskBool ? static_cast<const uint8_t *>(a.mask)[at] == 0 : static_cast<const float *>(a.mask)[at] == kNoScore;
}

// Keys [from, to) less those at the end that the mask's row at `at` hides. A cache is as long as a text may become: most of it is such an end.
int64_t last_seen(const AttentionF32 &a, int64_t at, int64_t from, int64_t to) {
  const int64_t stride = a.mask_strides[3];
  if (a.mask_kind == kMaskBool && stride == 1) {
    for (; to - from >= 8; to -= 8) {
      uint64_t eight;
      __builtin_memcpy(&eight, static_cast<const uint8_t *>(a.mask) + at + to - 8, sizeof eight);
      if (eight != 0) break;
    }
  }
  while (to > from && is_hidden(a, at + (to - 1) * stride)) to--;
  return to;
}

// The same for queries [s0, s0 + rows): what none of them sees.
int64_t last_seen_by_any(const AttentionF32 &a, int64_t base, int64_t s0, int64_t rows, int64_t from, int64_t to) {
  const int64_t stride = a.mask_strides[2];
  int64_t seen = from;
  for (int64_t s = stride == 0 ? s0 : s0 + rows - 1; s >= s0 && seen < to; s--) seen = last_seen(a, base + s * stride, seen, to); // the last sees most
  return seen;
}

// Whether the mask leaves rows x keys from `at` as they are, as a causal mask does with most blocks: to read one is far less than to add it (all
// of attention over 1,024 rows: 32 ms, not 36). The first row is looked at first, because it sees least.
bool changes_nothing(const AttentionF32 &a, int64_t at, int64_t rows, int64_t keys) {
  if (a.mask_strides[3] != 1) return false;
  for (int64_t s = 0; s < rows; s++, at += a.mask_strides[2]) {
    int64_t t = 0;
    if (a.mask_kind == kMaskBool) {
      const uint8_t *row = static_cast<const uint8_t *>(a.mask) + at;
      for (; t + 8 <= keys; t += 8) {
        uint64_t eight;
        __builtin_memcpy(&eight, row + t, sizeof eight);
        if (eight != 0x0101010101010101) return false; // a true that is no 1 is added as any other
      }
    } else {
      const float *row = static_cast<const float *>(a.mask) + at;
      for (; t + kWidth <= keys; t += kWidth)
        if (any(to_vec(load_lanes(row + t)) != splat<float>(0.0f))) return false;
    }
    for (; t < keys; t++)
      if (mask_value(a, at + t) != 0) return false;
  }
  return true;
}

// Adds the mask of queries [s0, s0 + rows) and keys [t0, t0 + keys) to scores[key][32].
void add_mask(const AttentionF32 &a, int64_t base, int64_t s0, int64_t rows, int64_t t0, int64_t keys, float *scores) {
  const int64_t s_stride = a.mask_strides[2], t_stride = a.mask_strides[3];
  base += s0 * s_stride + t0 * t_stride;
  if (s_stride == 0) { // one row for all queries: padding
    for (int64_t t = 0; t < keys; t++) {
      const float m = mask_value(a, base + t * t_stride);
      if (m == 0) continue;
      for (int j = 0; j < kQueryBlock; j += kWidth) {
        float *p = scores + t * kQueryBlock + j;
        store_lanes(p, load_lanes(p) + broadcast(m));
      }
    }
    return;
  }
  if (changes_nothing(a, base, rows, keys)) return;
  int64_t s = 0;
  if (t_stride == 1) {
    for (; s + 4 <= rows; s += 4) {
      int64_t t = 0;
      for (; t + 4 <= keys; t += 4) {
        const int64_t at = base + s * s_stride + t;
        Quads m;
        if (a.mask_kind == kMaskFloat) {
          m = load_quads(static_cast<const float *>(a.mask) + at, s_stride);
        } else {
          for (int i = 0; i < 4; i++) {
            typedef uint8_t Bytes __attribute__((vector_size(4)));
            Bytes seen;
            __builtin_memcpy(&seen, static_cast<const uint8_t *>(a.mask) + at + i * s_stride, 4);
            const QuadIndex wide = __builtin_convertvector(seen, QuadIndex);
            m.row[i] = wide != 0 ? Quad{} : Quad{} + kNoScore;
          }
        }
        m = transpose(m);
        for (int i = 0; i < 4; i++) {
          float *p = scores + (t + i) * kQueryBlock + s;
          store_quad(p, load_quad(p) + m.row[i]);
        }
      }
      for (; t < keys; t++)
        for (int i = 0; i < 4; i++) scores[t * kQueryBlock + s + i] += mask_value(a, base + (s + i) * s_stride + t);
    }
  }
  for (; s < rows; s++)
    for (int64_t t = 0; t < keys; t++) scores[t * kQueryBlock + s] += mask_value(a, base + s * s_stride + t * t_stride);
}

// Key t is for queries from t on: the lanes before it get -inf.
void add_causal(int64_t s0, int64_t t0, int64_t keys, float *scores) {
  for (int64_t t = t0 > s0 ? t0 : s0 + 1; t < t0 + keys; t++) {
    const int64_t hidden = t - s0 < kQueryBlock ? t - s0 : kQueryBlock;
    for (int64_t j = 0; j < hidden; j++) scores[(t - t0) * kQueryBlock + j] = kNoScore;
  }
}

// to[columns][32] = scale * from^T, rows past the last zero.
void transpose_scaled(const float *from, int64_t row_stride, int64_t stride, int64_t rows, int64_t columns, float scale, float *to) {
  int64_t s = 0;
  if (stride == 1) {
    for (; s + 4 <= rows; s += 4) {
      int64_t d = 0;
      for (; d + 4 <= columns; d += 4) {
        const Quads t = transpose(load_quads(from + s * row_stride + d, row_stride));
        for (int i = 0; i < 4; i++) store_quad(to + (d + i) * kQueryBlock + s, t.row[i] * scale);
      }
      for (; d < columns; d++)
        for (int i = 0; i < 4; i++) to[d * kQueryBlock + s + i] = from[(s + i) * row_stride + d] * scale;
    }
  }
  for (; s < kQueryBlock; s++)
    for (int64_t d = 0; d < columns; d++) to[d * kQueryBlock + s] = s < rows ? from[s * row_stride + d * stride] * scale : 0.0f;
}

// rows x columns with any strides into dense rows of `ldt`, zero past the last column.
void copy_rows(const float *from, int64_t row_stride, int64_t stride, int64_t rows, int64_t columns, float *to, int64_t ldt) {
  for (int64_t i = 0; i < rows; i++) {
    const float *f = from + i * row_stride;
    float *t = to + i * ldt;
    int64_t j = 0;
    if (stride == 1)
      for (; j + kWidth <= columns; j += kWidth) store_lanes(t + j, load_lanes(f + j));
    for (; j < columns; j++) t[j] = f[j * stride];
    for (; j < ldt; j++) t[j] = 0.0f;
  }
}

// One head's tensors.
struct Head {
  const float *q, *k, *v;
  float *out;
  int64_t mask_base;
};

// A block of keys as the products read it: in place, or copied.
struct KeyBlock {
  const float *k, *v;
  int64_t ldk, ldv;
};

struct Room { // a worker's scratch, laid out
  float *transposed[kGroup], *sums[kGroup], *maximum[kGroup], *weight[kGroup];
  float *scores, *k_copy, *v_copy;
  int64_t value_stride;
};

Room lay_out(const AttentionF32 &a, char *scratch) {
  float *p = reinterpret_cast<float *>(scratch);
  const auto take = [&p](int64_t floats) {
    float *q = p;
    p += floats;
    return q;
  };
  Room r;
  r.value_stride = divide_up(a.value_dim, kWidth) * kWidth;
  r.scores = take(kKeyBlock * kQueryBlock);
  for (int g = 0; g < kGroup; g++) {
    r.transposed[g] = take(kQueryBlock * a.head_dim);
    r.maximum[g] = take(kQueryBlock);
    r.weight[g] = take(kQueryBlock);
    r.sums[g] = take(kQueryBlock * r.value_stride);
  }
  r.v_copy = take(kKeyBlock * r.value_stride);
  r.k_copy = take(kKeyBlock * a.head_dim);
  return r;
}

KeyBlock prepare_keys(const AttentionF32 &a, const Head &h, const Room &room, int64_t t0, int64_t keys, bool shared) {
  KeyBlock b;
  b.k = h.k + t0 * a.k_strides[2];
  b.ldk = a.k_strides[2];
  if (a.k_strides[3] != 1) {
    copy_rows(b.k, a.k_strides[2], a.k_strides[3], keys, a.head_dim, room.k_copy, a.head_dim);
    b.k = room.k_copy, b.ldk = a.head_dim;
  }
  b.v = h.v + t0 * a.v_strides[2];
  b.ldv = a.v_strides[2];
  // Rows far apart meet in a few sets of L1 and need a page each: the copy is worth it as soon as tiles read V more than once.
  if (a.v_strides[3] != 1 || a.value_dim % kWidth != 0 || (shared && a.v_strides[2] > 2 * a.value_dim)) {
    copy_rows(b.v, a.v_strides[2], a.v_strides[3], keys, a.value_dim, room.v_copy, room.value_stride);
    b.v = room.v_copy, b.ldv = room.value_stride;
  }
  return b;
}

void attend_block(const AttentionF32 &a, const Head &h, const Room &room, const KeyBlock &kb, int64_t t0, int64_t keys, const QueryBlock &q, bool first) {
  const int64_t vectors = divide_up(q.rows, kWidth);
  Tile tile{};
  tile.lda = kb.ldk;
  tile.ldc = kQueryBlock;
  tile.k = a.head_dim;
  tile.prefetch = reinterpret_cast<const char *>(q.transposed);
  const Shape by_keys(keys, vectors);
  for (int64_t v = 0; v < vectors; v += by_keys.vectors) {
    int64_t run;
    for (int64_t i = 0; i < by_keys.tiles; i += run) {
      const int64_t at = by_keys.rows.start(i), count = by_keys.rows.start(i + 1) - at;
      run = by_keys.rows.alike(i, by_keys.tiles);
      tile.tiles = run;
      tile.a = kb.k + at * kb.ldk;
      tile.b = q.transposed + v * kWidth;
      tile.c = room.scores + at * kQueryBlock + v * kWidth;
      kTileKernels[count - 1][by_keys.kernel(vectors - v)](tile);
    }
  }
  if (a.mask_kind != kMaskNone) add_mask(a, h.mask_base, q.first, q.rows, t0, keys, room.scores);
  if (a.is_causal) add_causal(q.first, t0, keys, room.scores);
  alignas(64) float rescale[kQueryBlock];
  soften_any(vectors, room.scores, keys, q.maximum, q.weight, rescale);
  const int64_t value_vectors = room.value_stride / kWidth;
  for (int64_t v = 0; v < value_vectors;) {
    const Shape by_rows(q.rows, value_vectors - v);
    for (int64_t i = 0; i < by_rows.tiles; i++) {
      const int64_t at = by_rows.rows.start(i), count = by_rows.rows.start(i + 1) - at;
      kWeighTiles[count - 1][by_rows.kernel(value_vectors - v)](room.scores + at, kb.v + v * kWidth, kb.ldv, keys, q.sums + at * room.value_stride + v * kWidth,
                                                                room.value_stride, first ? nullptr : rescale + at);
    }
    v += by_rows.vectors;
  }
}

// out = sums / weight; a row without weight is zero.
void write_row(const AttentionF32 &a, const float *sums, float weight, float *out) {
  const float factor = weight == 0 ? 0.0f : 1.0f / weight;
  int64_t j = 0;
  if (a.out_strides[3] == 1) {
    for (; j + kWidth <= a.value_dim; j += kWidth) store_lanes(out + j, load_lanes(sums + j) * broadcast(factor));
  }
  for (; j < a.value_dim; j++) out[j * a.out_strides[3]] = sums[j] * factor;
}

Split key_blocks(int64_t keys, int64_t *blocks) {
  *blocks = divide_up(keys, kKeyBlock);
  return Split(keys, *blocks);
}

// Query blocks [b0, b1) of one head, at most kGroup.
void attend_group(const AttentionF32 &a, const Head &h, int64_t b0, int64_t b1, const Room &room) {
  QueryBlock block[kGroup];
  bool begun[kGroup];
  const int64_t count = b1 - b0;
  for (int64_t g = 0; g < count; g++) {
    QueryBlock &q = block[g];
    q.first = (b0 + g) * kQueryBlock;
    q.rows = a.queries - q.first < kQueryBlock ? a.queries - q.first : kQueryBlock;
    q.transposed = room.transposed[g], q.sums = room.sums[g], q.maximum = room.maximum[g], q.weight = room.weight[g];
    begun[g] = false;
    transpose_scaled(h.q + q.first * a.q_strides[2], a.q_strides[2], a.q_strides[3], q.rows, a.head_dim, a.scale, q.transposed);
    for (int j = 0; j < kQueryBlock; j++) q.maximum[j] = kNoScore, q.weight[j] = 0.0f;
  }
  int64_t blocks;
  const Split keys_of = key_blocks(a.keys, &blocks);
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t t0 = keys_of.start(b), t1 = keys_of.start(b + 1);
    if (a.is_causal && t0 > block[count - 1].first + block[count - 1].rows - 1) break;
    int64_t seen[kGroup], most = t0;
    for (int64_t g = 0; g < count; g++) {
      const QueryBlock &q = block[g];
      seen[g] = a.is_causal && q.first + q.rows < t1 ? q.first + q.rows : t1;
      if (a.mask_kind != kMaskNone && seen[g] > t0) seen[g] = last_seen_by_any(a, h.mask_base, q.first, q.rows, t0, seen[g]);
      if (seen[g] > most) most = seen[g];
    }
    if (most == t0) continue;
    const KeyBlock kb = prepare_keys(a, h, room, t0, most - t0, true);
    for (int64_t g = 0; g < count; g++) {
      if (seen[g] <= t0) continue;
      attend_block(a, h, room, kb, t0, seen[g] - t0, block[g], !begun[g]);
      begun[g] = true;
    }
  }
  for (int64_t g = 0; g < count; g++) {
    const QueryBlock &q = block[g];
    if (!begun[g])
      for (int64_t j = 0; j < q.rows * room.value_stride; j++) q.sums[j] = 0.0f;
    for (int64_t i = 0; i < q.rows; i++)
      write_row(a, q.sums + i * room.value_stride, q.weight[i], h.out + (q.first + i) * a.out_strides[2]);
  }
}

// ---- single rows -------------------------------------------------------------------------------------------------------------

SEALIFT_INLINE Quad fold(Lanes x) { // lanes to four partial sums
  union {
    Lanes whole;
    Quad part[kWidth / 4];
  } u{x};
#pragma GCC unroll 4
  for (int half = kWidth / 8; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int i = 0; i < half; i++) u.part[i] += u.part[i + half];
  return u.part[0];
}

// q . k of four keys. q is zero past head_dim, up to a whole vector.
SEALIFT_INLINE Quad four_scores(const float *q, const float *k, int64_t ldk, int64_t head_dim) {
  Lanes sum[4] = {};
  int64_t d = 0;
  for (; d + kWidth <= head_dim; d += kWidth) {
    const Lanes qv = load_lanes(q + d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sum[i] = multiply_add(qv, load_lanes(k + i * ldk + d), sum[i]);
  }
  if (d < head_dim) {
    const Lanes qv = load_lanes(q + d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sum[i] = multiply_add(qv, load_part(k + i * ldk + d, head_dim - d), sum[i]);
  }
  const Quads t = transpose({{fold(sum[0]), fold(sum[1]), fold(sum[2]), fold(sum[3])}});
  return (t.row[0] + t.row[1]) + (t.row[2] + t.row[3]);
}

// sums[vectors] (+)= weights . V, two keys side by side.
template <int kVectors>
SEALIFT_INLINE void weigh_row(const float *weights, const float *v, int64_t ldv, int64_t keys, float *sums, bool first, float rescale) {
  Lanes sum[2][kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; j++) {
    sum[0][j] = first ? Lanes{} : load_lanes(sums + j * kWidth) * broadcast(rescale);
    sum[1][j] = Lanes{};
  }
  int64_t t = 0;
  for (; t + 2 <= keys; t += 2)
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const Lanes w = broadcast(weights[t + i]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; j++) sum[i][j] = multiply_add(w, load_lanes(v + (t + i) * ldv + j * kWidth), sum[i][j]);
    }
  if (t < keys) {
    const Lanes w = broadcast(weights[t]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; j++) sum[0][j] = multiply_add(w, load_lanes(v + t * ldv + j * kWidth), sum[0][j]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; j++) store_lanes(sums + j * kWidth, sum[0][j] + sum[1][j]);
}

void attend_row(const AttentionF32 &a, const Head &h, int64_t s, const Room &room) {
  float *q = room.transposed[0]; // room for 32 * head_dim
  const int64_t padded = divide_up(a.head_dim, kWidth) * kWidth;
  for (int64_t d = 0; d < padded; d++) q[d] = d < a.head_dim ? h.q[s * a.q_strides[2] + d * a.q_strides[3]] * a.scale : 0.0f;
  float *scores = room.scores, *sums = room.sums[0];
  float most = kNoScore, weight = 0;
  for (int64_t j = 0; j < room.value_stride; j++) sums[j] = 0.0f;
  int64_t blocks;
  const Split keys_of = key_blocks(a.keys, &blocks);
  bool first = true;
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t t0 = keys_of.start(b);
    int64_t t1 = keys_of.start(b + 1);
    if (a.is_causal && t1 > s + 1) t1 = s + 1;
    if (t1 <= t0) break;
    if (a.mask_kind != kMaskNone) t1 = last_seen(a, h.mask_base + s * a.mask_strides[2], t0, t1);
    if (t1 <= t0) continue;
    const int64_t keys = t1 - t0;
    const KeyBlock kb = prepare_keys(a, h, room, t0, keys, false);
    int64_t t = 0;
    for (; t + 4 <= keys; t += 4) store_quad(scores + t, four_scores(q, kb.k + t * kb.ldk, kb.ldk, a.head_dim));
    for (; t < keys; t++) scores[t] = four_scores(q, kb.k + t * kb.ldk, 0, a.head_dim)[0];
    if (a.mask_kind != kMaskNone)
      for (t = 0; t < keys; t++) scores[t] += mask_value(a, h.mask_base + s * a.mask_strides[2] + (t0 + t) * a.mask_strides[3]);
    const int64_t whole = divide_up(keys, kWidth) * kWidth;
    for (t = keys; t < whole; t++) scores[t] = kNoScore;
    Lanes top = broadcast(most), total{};
    for (t = 0; t < whole; t += kWidth) top = larger(top, load_lanes(scores + t));
    const float old = most;
    most = reduce_max(to_vec(top));
    const Lanes base = or_zero(broadcast(most));
    const float rescale = lane0(to_vec(exp_score(broadcast(old) - base)));
    for (t = 0; t < whole; t += kWidth) {
      const Lanes w = exp_score(load_lanes(scores + t) - base);
      store_lanes(scores + t, w);
      total += w;
    }
    weight = weight * rescale + reduce_add(to_vec(total));
    int64_t j = 0;
    for (; j + 4 * kWidth <= room.value_stride; j += 4 * kWidth) weigh_row<4>(scores, kb.v + j, kb.ldv, keys, sums + j, first, rescale);
    for (; j < room.value_stride; j += kWidth) weigh_row<1>(scores, kb.v + j, kb.ldv, keys, sums + j, first, rescale);
    first = false;
  }
  write_row(a, sums, weight, h.out + s * a.out_strides[2]);
}

SEALIFT_INLINE int64_t units_per_head(const AttentionF32 &a) { return a.queries <= kRowQueries ? a.queries : divide_up(a.queries, kQueryBlock); }

} // namespace

int64_t attention_f32_num_tasks(const AttentionF32Task *task) {
  const AttentionF32 &a = task->attention;
  if (a.value_dim <= 0 || a.queries <= 0) return 0;
  return a.batch * a.heads * units_per_head(a);
}

void attention_f32_task(void *task, int64_t begin, int64_t end, int32_t worker) {
  const AttentionF32Task &t = *static_cast<const AttentionF32Task *>(task);
  const AttentionF32 &a = t.attention;
  const Room room = lay_out(a, t.scratch + worker * t.scratch_stride_bytes);
  const int64_t per_head = units_per_head(a);
  while (begin < end) {
    const int64_t head = begin / per_head, unit = begin % per_head;
    int64_t last = unit + (end - begin) < per_head ? unit + (end - begin) : per_head;
    const int64_t b = head / a.heads, hq = head % a.heads, hk = hq / (a.heads / a.kv_heads);
    Head h;
    h.q = a.q + b * a.q_strides[0] + hq * a.q_strides[1];
    h.k = a.k + b * a.k_strides[0] + hk * a.k_strides[1];
    h.v = a.v + b * a.v_strides[0] + hk * a.v_strides[1];
    h.out = a.out + b * a.out_strides[0] + hq * a.out_strides[1];
    h.mask_base = b * a.mask_strides[0] + hq * a.mask_strides[1];
    if (a.queries <= kRowQueries) {
      for (int64_t s = unit; s < last; s++) attend_row(a, h, s, room);
    } else {
      if (last > unit + kGroup) last = unit + kGroup;
      attend_group(a, h, unit, last, room);
    }
    begin += last - unit;
  }
}

void attention_f32(sealift_frame *frame, const AttentionF32 &attention) {
  AttentionF32Task task;
  task.attention = attention;
  task.scratch = frame->scratch;
  task.scratch_stride_bytes = frame->scratch_stride_bytes;
  const int64_t count = attention_f32_num_tasks(&task);
  if (count == 0) return;
  const int64_t work = attention.batch * attention.heads * attention.queries * attention.keys * (attention.head_dim + attention.value_dim);
  if (frame->num_workers <= 1 || count == 1 || work < kForkWork) attention_f32_task(&task, 0, count, 0);
  else frame->host->parallel_for(frame, count, 1, attention_f32_task, &task);
}

} // namespace SEALIFT_NS
