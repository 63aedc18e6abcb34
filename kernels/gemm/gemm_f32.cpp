// f32 matrix product, compiled once per ISA. Read bottom up: gemm_f32 splits the work, rectangle() walks cache blocks, tile_kernel() multiplies.
//
// The order in which an element's products are added: k is cut into equal blocks of at most kBlockDepth, each block is summed in ascending k by one
// accumulator - two by turns where its columns fill one vector only - and added to the sum so far. It depends on neither the split over workers nor
// the height of a tile. m <= 4 takes the bandwidth-bound kernels (gemv_kernel, dot_kernel), which have an order of their own.
#include "gemm.h"

#include "../../contracts/sealift_model.h"
#include "activations.h"
#include "lanes.h"
#include "tile.h"

namespace SEALIFT_NS {
namespace {

constexpr int kBlockDepth = kWidth == 16 ? 384 : 192;              // a block of B is kBlockDepth * 128 bytes; 192 as MKL: longer chains are less exact than eager's
static_assert(kBlockDepth >= kGemmInPlaceDepth, "a residual that is C itself is read once the whole of k is summed");
constexpr int kBlockRows = kWidth == 16 ? 252 : 144;               // a block of A stays in L2
constexpr int64_t kNearCacheBytes = kWidth == 16 ? 1 << 20 : 384 << 10; // of L2, for A
constexpr int64_t kSmallBytes = 64 << 10; // of B, below which nothing is fetched ahead
constexpr int kGemvRows = kWidth == 16 ? 4 : kWidth == 8 ? 3 : 1;       // rows that share one pass over B when m <= 4
constexpr int64_t kGemvMaxRows = 4;
constexpr int64_t kGemvBlockDepth = 128;      // k-block when the rows take more than one pass: 16 KB of B, from L1 the second time
constexpr int64_t kGemvPrefetchRows = 16;      // how far ahead of the multiply B is fetched: 2 KB
constexpr int64_t kFinishTiles = 8;           // that are finished together, while L1 holds them
constexpr int64_t kForkWork = 1 << 17; // multiply-adds below which a fork costs more than it saves (2 to 4 us)

// out[kRows][kPanel] (+)= A * one panel: B is streamed once, kDeep steps of k side by side so that the additions overlap.
template <int kRows, int kDeep>
void gemv_kernel(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t k, float *out, bool from_out) {
  constexpr int kVectors = kPanel / kWidth;
  Lanes sum[kDeep][kRows][kVectors];
#pragma GCC unroll 4
  for (int d = 0; d < kDeep; d++)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v++) sum[d][i][v] = Lanes{};
  const float *ahead = b + kGemvPrefetchRows * ldb;
  auto step = [&](int kk, int d) __attribute__((always_inline)) {
    __builtin_prefetch(ahead + kk * ldb, 0, 3);
    __builtin_prefetch(ahead + kk * ldb + 16, 0, 3);
    Lanes av[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; i++) av[i] = broadcast(a[i * lda + kk]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      const Lanes bv = load_lanes(b + kk * ldb + v * kWidth);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; i++) sum[d][i][v] = multiply_add(av[i], bv, sum[d][i][v]);
    }
  };
  for (; k >= kDeep; k -= kDeep) {
#pragma GCC unroll 4
    for (int d = 0; d < kDeep; d++) step(d, d);
    a += kDeep, b += kDeep * ldb, ahead += kDeep * ldb;
  }
  for (; k > 0; k--) {
    step(0, 0);
    a += 1, b += ldb, ahead += ldb;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      Lanes total = sum[0][i][v];
#pragma GCC unroll 4
      for (int d = 1; d < kDeep; d++) total += sum[d][i][v];
      if (from_out) total += load_lanes(out + i * kPanel + v * kWidth);
      store_lanes(out + i * kPanel + v * kWidth, total);
    }
}

// out[kRows][4] = A * four rows of a transposed B: products along k, folded at the end.
template <int kRows>
void dot_kernel(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t k, float *out, int64_t ldo) {
  constexpr int kColumns = 4;
  Lanes sum[kRows][kColumns];
#pragma GCC unroll 2
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; j++) sum[i][j] = Lanes{};
  auto step = [&](auto read) __attribute__((always_inline)) {
    Lanes av[kRows];
#pragma GCC unroll 2
    for (int i = 0; i < kRows; i++) av[i] = read(a + i * lda);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; j++) {
      const Lanes bv = read(b + j * ldb);
#pragma GCC unroll 2
      for (int i = 0; i < kRows; i++) sum[i][j] = multiply_add(av[i], bv, sum[i][j]);
    }
  };
  for (; k >= kWidth; k -= kWidth) {
    step([](const float *p) __attribute__((always_inline)) { return load_lanes(p); });
    a += kWidth, b += kWidth;
  }
  if (k > 0) step([k](const float *p) __attribute__((always_inline)) { return load_part(p, k); });
#pragma GCC unroll 2
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; j++) {
      float part[kWidth];
      store_lanes(part, sum[i][j]);
#pragma GCC unroll 4
      for (int half = kWidth / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) part[l] += part[l + half];
      out[i * ldo + j] = part[0];
    }
}

// to = activation(from + bias), vector by vector, whole or partial.
template <int kActivation>
void activate_rows(const float *from, int64_t ldf, float *to, int64_t ldt, int64_t rows, int64_t columns, const float *bias) {
  for (int64_t i = 0; i < rows; i++) {
    const float *f = from + i * ldf;
    float *t = to + i * ldt;
    int64_t j = 0;
    for (; j + kWidth <= columns; j += kWidth) {
      Lanes x = load_lanes(f + j);
      if (bias) x += load_lanes(bias + j);
      store_lanes(t + j, activate<kActivation>(x));
    }
    if (j < columns) {
      const int64_t rest = columns - j;
      Lanes x = load_part(f + j, rest);
      if (bias) x += load_part(bias + j, rest);
      store_part(t + j, activate<kActivation>(x), rest);
    }
  }
}

void activate_any(int32_t activation, const float *from, int64_t ldf, float *to, int64_t ldt, int64_t rows, int64_t columns, const float *bias) {
  switch (activation) {
  case kActivationRelu: return activate_rows<kActivationRelu>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationGeluErf: return activate_rows<kActivationGeluErf>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationGeluTanh: return activate_rows<kActivationGeluTanh>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationSilu: return activate_rows<kActivationSilu>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationSigmoid: return activate_rows<kActivationSigmoid>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationTanh: return activate_rows<kActivationTanh>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationRelu6: return activate_rows<kActivationRelu6>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationHardSwish: return activate_rows<kActivationHardSwish>(from, ldf, to, ldt, rows, columns, bias);
  case kActivationHardSigmoid: return activate_rows<kActivationHardSigmoid>(from, ldf, to, ldt, rows, columns, bias);
  default: return activate_rows<kActivationNone>(from, ldf, to, ldt, rows, columns, bias);
  }
}

// Everything after the sum, for tiles that the registers did not finish. bias and residual point at the tile's first column; null: none.
void finish(const GemmF32 &g, const float *from, int64_t ldf, float *c, int64_t rows, int64_t columns, const float *bias, const float *residual) {
  activate_any(g.activation, from, ldf, c, g.ldc, rows, columns, bias);
  if (residual) {
    for (int64_t i = 0; i < rows; i++) {
      const float *r = residual + i * g.ldr;
      float *t = c + i * g.ldc;
      int64_t j = 0;
      for (; j + kWidth <= columns; j += kWidth) store_lanes(t + j, load_lanes(t + j) + load_lanes(r + j));
      for (; j < columns; j++) t[j] += r[j];
    }
  }
  if (g.post_activation != kActivationNone) activate_any(g.post_activation, c, g.ldc, c, g.ldc, rows, columns, nullptr);
}

// One block [depth][kPanel] of B from where it lies, columns past `columns` zero.
void pack_block(const GemmF32 &g, const float *b, int64_t k0, int64_t depth, int64_t n0, float *to) {
  const int64_t columns = g.n - n0 < kPanel ? g.n - n0 : kPanel;
  if (g.b_layout == kBRowMajor) {
    for (int64_t k = 0; k < depth; k++) {
      const float *from = b + (k0 + k) * g.ldb + n0;
      float *row = to + k * kPanel;
      if (columns == kPanel) {
#pragma GCC unroll 8
        for (int j = 0; j < kPanel; j += kWidth) store_lanes(row + j, load_lanes(from + j));
      } else {
        for (int64_t j = 0; j < kPanel; j++) row[j] = j < columns ? from[j] : 0.0f;
      }
    }
    return;
  }
  const float *from = b + n0 * g.ldb + k0;
  for (int64_t j0 = 0; j0 < kPanel; j0 += 4) {
    int64_t k = 0;
    if (j0 + 4 <= columns) {
      for (; k + 4 <= depth; k += 4) {
        const Quads t = transpose(load_quads(from + j0 * g.ldb + k, g.ldb));
        for (int i = 0; i < 4; i++) store_quad(to + (k + i) * kPanel + j0, t.row[i]);
      }
    }
    for (; k < depth; k++)
      for (int64_t j = j0; j < j0 + 4; j++) to[k * kPanel + j] = j < columns ? from[j * g.ldb + k] : 0.0f;
  }
}

struct Depth { // the blocks of k; there is one even when k is 0
  int64_t blocks, each;
};

SEALIFT_INLINE Depth depth_of(int64_t k) {
  if (k <= kBlockDepth) return {1, k};
  const int64_t blocks = divide_up(k, kBlockDepth);
  const int64_t each = (divide_up(k, blocks) + 3) / 4 * 4;
  return {divide_up(k, each), each};
}

// One batch member's operands.
struct Operands {
  const float *a, *b, *residual;
  float *c;
  int64_t first_row; // of the member, in the numbering the epilogue sees
};

SEALIFT_INLINE bool takes_gemv(const GemmF32 &g) { return g.m <= kGemvMaxRows && g.n >= kPanel; }

// Rows [m0, m1) of panels [p0, p1), m <= kGemvMaxRows in all.
void gemv_rectangle(const GemmF32 &g, const Operands &o, int64_t m0, int64_t m1, int64_t p0, int64_t p1, float *block) {
  alignas(64) float out[kGemvMaxRows * kPanel];
  const int64_t rows = m1 - m0;
  const float *a = o.a + m0 * g.lda;
  for (int64_t p = p0; p < p1; p++) {
    const int64_t n0 = p * kPanel, columns = g.n - n0 < kPanel ? g.n - n0 : kPanel;
    if (g.b_layout == kBTransposed) {
      for (int64_t j = 0; j < columns; j += 4) {
        // the last columns of a count that is no multiple of 4: step back, or take them one row of B at a time
        const float *b = o.b + (n0 + j) * g.ldb;
        const bool whole = j + 4 <= columns;
        float part[4];
        for (int64_t i = 0; i < rows; i++) {
          if (whole) {
            dot_kernel<1>(a + i * g.lda, g.lda, b, g.ldb, g.k, out + i * kPanel + j, kPanel);
          } else {
            for (int64_t jj = j; jj < columns; jj++) {
              dot_kernel<1>(a + i * g.lda, g.lda, o.b + (n0 + jj) * g.ldb, 0, g.k, part, 4);
              out[i * kPanel + jj] = part[0];
            }
          }
        }
      }
    } else {
      const bool pack = g.b_layout != kBPanel32 && columns < kPanel;
      const int64_t depth = pack || rows > kGemvRows ? kGemvBlockDepth : kBlockDepth; // chains of products stay short: their error grows with the length
      const int64_t passes = divide_up(rows, kGemvRows);
      int64_t k0 = 0;
      do {
        const int64_t deep = g.k - k0 < depth ? g.k - k0 : depth;
        const float *b = g.b_layout == kBPanel32 ? o.b + (p * g.k + k0) * kPanel : o.b + k0 * g.ldb + n0;
        int64_t ldb = g.b_layout == kBPanel32 ? kPanel : g.ldb;
        if (pack) {
          pack_block(g, o.b, k0, deep, n0, block);
          b = block, ldb = kPanel;
        }
        for (int64_t pass = 0; pass < passes; pass++) {
          const int64_t i = rows * pass / passes, count = rows * (pass + 1) / passes - i;
          const float *ap = a + i * g.lda + k0;
          float *op = out + i * kPanel;
          if (count == 1) gemv_kernel<1, kWidth == 16 ? 4 : kWidth == 8 ? 2 : 1>(ap, g.lda, b, ldb, deep, op, k0 > 0);
          if constexpr (kGemvRows >= 3) {
            if (count == 2) gemv_kernel<2, kWidth == 16 ? 4 : 1>(ap, g.lda, b, ldb, deep, op, k0 > 0);
            if (count == 3) gemv_kernel<3, kWidth == 16 ? 2 : 1>(ap, g.lda, b, ldb, deep, op, k0 > 0);
          }
          if constexpr (kGemvRows >= 4) {
            if (count == 4) gemv_kernel<4, 2>(ap, g.lda, b, ldb, deep, op, k0 > 0);
          }
        }
        k0 += depth;
      } while (k0 < g.k);
    }
    float *c = o.c + m0 * g.ldc + n0;
    const float *bias = g.bias ? g.bias + n0 : nullptr, *residual = o.residual ? o.residual + m0 * g.ldr + n0 : nullptr;
    if (residual == c) { // which finish() would write to before it reads it
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) out[i * kPanel + j] = (bias ? out[i * kPanel + j] + bias[j] : out[i * kPanel + j]) + c[i * g.ldc + j];
      bias = residual = nullptr;
    }
    finish(g, out, kPanel, c, rows, columns, bias, residual);
    if (g.epilogue) g.epilogue(g.epilogue_ctx, c, g.ldc, o.first_row + m0, o.first_row + m1, n0, n0 + columns);
  }
}

// Rows [r0, r1) of panel p times k-block [k0, k0 + depth): the tiles of one block of B.
struct Block {
  int64_t r0, r1, p, k0, depth;
  const float *a; // row r0, k0
  int64_t lda;
  const float *b;
  const char *next; // the block that follows; fetched into L2 at an even pace, because a burst of prefetches costs a tenth of the speed
  bool first, last;
};

// n floats, n < kTileColumns: a tail, in a few moves.
SEALIFT_INLINE void copy_columns(float *to, const float *from, int64_t n) {
  if (n >= kWidth) {
    store_lanes(to, load_lanes(from));
    to += kWidth, from += kWidth, n -= kWidth;
  }
  copy_elements<sizeof(float)>(to, from, n);
}

void multiply_block(const GemmF32 &g, const Operands &o, const Block &s) {
  const int64_t columns = g.n - s.p * kPanel < kPanel ? g.n - s.p * kPanel : kPanel;
  const int64_t rows = s.r1 - s.r0;
  const bool whole_panel = columns == kPanel && kPanelVectors > kTileVectors && rows >= 4 * kTileRows; // a few rows divide better into taller tiles
  const int64_t tiles = divide_up(rows, whole_panel ? kPanelRows : kTileRows);
  const int64_t strip_columns = whole_panel ? kPanel : kTileColumns, strips = divide_up(columns, strip_columns);
  const bool simple = is_cheap(g.activation);
  const bool simple_post = g.post_activation == kActivationNone || (g.post_activation == kActivationRelu && o.residual);
  const bool in_registers = simple && simple_post, needs_finish = s.last && !in_registers;
  int32_t flags = s.first ? 0 : kFromC;
  if (s.last && in_registers) {
    if (g.bias) flags |= kAddBias;
    flags |= activation_flag(g.activation);
    if (o.residual) flags |= kAddResidual;
    if (g.post_activation == kActivationRelu) flags |= kPostRelu;
  }
  Tile t;
  t.lda = s.lda;
  t.ldr = g.ldr;
  t.k = s.depth;
  t.prefetch = s.next;
  t.prefetch_step_bytes = 0;
  if (s.next) {
    t.prefetch_step_bytes = kPanel * 4 * kPrefetchEvery / static_cast<uint32_t>(tiles * strips);
  } else {
    t.prefetch = reinterpret_cast<const char *>(s.b);
  }
  const Split rows_of(rows, tiles);
  const int64_t prefetch_tile_bytes = t.prefetch_step_bytes * (s.depth / kPrefetchEvery);
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t n0 = s.p * kPanel + strip * strip_columns;
    const int64_t left = g.n - n0;
    const bool whole = left >= kTileColumns || left == kWidth;
    const int vectors = left > kWidth ? 2 : 1;
    const float *bias = g.bias ? g.bias + n0 : nullptr;
    alignas(64) float own_bias[kTileColumns];
    if (!whole && s.last) {
      for (int j = 0; j < kTileColumns; j += kWidth) store_lanes(own_bias + j, Lanes{});
      if (bias) copy_columns(own_bias, bias, left);
    }
    t.b = s.b + strip * strip_columns;
    int64_t run; // of tiles of one height
    for (int64_t tile = 0; tile < tiles; tile += run) {
      const int64_t i = rows_of.start(tile), count = rows_of.start(tile + 1) - i;
      run = whole ? rows_of.alike(tile, tiles) : 1;
      if (needs_finish && run > kFinishTiles) run = kFinishTiles;
      t.tiles = run;
      const TileKernel kernel = kTileKernels[count - 1][whole_panel ? 2 : vectors - 1];
      float *c = o.c + (s.r0 + i) * g.ldc + n0;
      const float *residual = o.residual ? o.residual + (s.r0 + i) * g.ldr + n0 : nullptr;
      t.a = s.a + i * s.lda;
      if (whole) {
        t.c = c, t.ldc = g.ldc, t.flags = flags, t.bias = bias, t.residual = residual;
        kernel(t);
        if (needs_finish) finish(g, c, g.ldc, c, run * count, left < strip_columns ? left : strip_columns, bias, residual);
      } else { // a partial vector of columns: through a whole tile of our own
        alignas(64) float own[kTileRows * kTileColumns];
        if (!s.first)
          for (int64_t r = 0; r < count; r++) copy_columns(own + r * kTileColumns, c + r * g.ldc, left);
        t.c = own, t.ldc = kTileColumns, t.bias = own_bias;
        t.flags = (flags & kFromC) | (s.last ? kAddBias : 0) | (s.last ? activation_flag(g.activation) : 0);
        kernel(t);
        if (s.last) {
          if (!simple) activate_any(g.activation, own, kTileColumns, own, kTileColumns, count, vectors * kWidth, nullptr);
          if (residual)
            for (int64_t r = 0; r < count; r++)
              for (int64_t j = 0; j < left; j++) own[r * kTileColumns + j] += residual[r * g.ldr + j];
          if (g.post_activation != kActivationNone) activate_any(g.post_activation, own, kTileColumns, own, kTileColumns, count, vectors * kWidth, nullptr);
        }
        for (int64_t r = 0; r < count; r++) copy_columns(c + r * g.ldc, own + r * kTileColumns, left);
      }
      t.prefetch += run * prefetch_tile_bytes;
    }
  }
}

// Rows [m0, m1) of panels [p0, p1) of one batch member. `block` holds a packed block of B, `rows_copy` one of A.
void rectangle(const GemmF32 &g, const Operands &o, int64_t m0, int64_t m1, int64_t p0, int64_t p1, float *block, float *rows_copy) {
  const bool packed_b = g.b_layout == kBPanel32;
  const Depth depth = depth_of(g.k);
  const int64_t row_blocks = divide_up(m1 - m0, kBlockRows);
  const Split rows_of(m1 - m0, row_blocks);
  const bool prefetch = packed_b && (p1 - p0) * g.k * kPanel * 4 > kSmallBytes;
  // Rows a multiple of 4 KB apart share their L1 sets; a copy with an odd stride pays once a few panels read it.
  const bool copy_a = rows_copy && g.lda % 1024 == 0 && m1 - m0 > 2 * kTileRows && p1 - p0 >= 3;
  for (int64_t rb = 0; rb < row_blocks; rb++) {
    Block s;
    s.r0 = m0 + rows_of.start(rb);
    s.r1 = m0 + rows_of.start(rb + 1);
    // All of A's rows in L2: sum a panel to its end. Otherwise one k-block of A stays there and C's partial sums travel.
    const bool depth_outside = copy_a || (s.r1 - s.r0) * g.k * 4 > kNearCacheBytes;
    const int64_t outer = depth_outside ? depth.blocks : p1 - p0, inner = depth_outside ? p1 - p0 : depth.blocks;
    for (int64_t x = 0; x < outer; x++) {
      for (int64_t y = 0; y < inner; y++) {
        const int64_t kb = depth_outside ? x : y;
        s.p = p0 + (depth_outside ? y : x);
        s.k0 = kb * depth.each;
        s.depth = g.k - s.k0 < depth.each ? g.k - s.k0 : depth.each;
        s.first = kb == 0;
        s.last = kb + 1 == depth.blocks;
        s.a = o.a + s.r0 * g.lda + s.k0;
        s.lda = g.lda;
        if (copy_a) {
          s.lda = depth.each + 16;
          if (y == 0)
            for (int64_t i = 0; i < s.r1 - s.r0; i++) __builtin_memcpy(rows_copy + i * s.lda, s.a + i * g.lda, s.depth * sizeof(float));
          s.a = rows_copy;
        }
        if (packed_b) {
          s.b = o.b + (s.p * g.k + s.k0) * kPanel;
          const float *next = depth_outside && y + 1 < inner ? s.b + g.k * kPanel : s.b + s.depth * kPanel;
          s.next = reinterpret_cast<const char *>(next);
          if (depth_outside && y + 1 == inner) s.next = s.last ? nullptr : reinterpret_cast<const char *>(o.b + (p0 * g.k + s.k0 + s.depth) * kPanel);
          if (!prefetch) s.next = nullptr;
        } else {
          pack_block(g, o.b, s.k0, s.depth, s.p * kPanel, block);
          s.b = block;
          s.next = nullptr;
        }
        multiply_block(g, o, s);
        if (s.last && g.epilogue) {
          const int64_t n0 = s.p * kPanel, n1 = n0 + kPanel < g.n ? n0 + kPanel : g.n;
          g.epilogue(g.epilogue_ctx, o.c + s.r0 * g.ldc + n0, g.ldc, o.first_row + s.r0, o.first_row + s.r1, n0, n1);
        }
      }
    }
  }
}

void member_rectangle(const GemmF32 &g, const Operands &o, int64_t m0, int64_t m1, int64_t p0, int64_t p1, char *scratch) {
  float *block = reinterpret_cast<float *>(scratch), *rows_copy = block;
  if (scratch && g.b_layout != kBPanel32) rows_copy = block + depth_of(g.k).each * kPanel;
  if (takes_gemv(g)) gemv_rectangle(g, o, m0, m1, p0, p1, block);
  else rectangle(g, o, m0, m1, p0, p1, block, rows_copy);
}

void units(const GemmF32Task &task, int64_t begin, int64_t end, char *scratch) {
  const GemmF32 &g = task.gemm;
  const int64_t per_member = task.row_chunks * task.panel_chunks, panels = divide_up(g.n, kPanel);
  while (begin < end) {
    const int64_t member = begin / per_member, unit = begin % per_member;
    int64_t last = unit + (end - begin) < per_member ? unit + (end - begin) : per_member; // units [unit, last) of this member
    int64_t m0, m1, p0 = 0, p1 = panels;
    if (task.panel_chunks == 1) {
      m0 = g.m * unit / task.row_chunks, m1 = g.m * last / task.row_chunks;
    } else {
      const int64_t chunk = unit / task.panel_chunks;
      if (last > (chunk + 1) * task.panel_chunks) last = (chunk + 1) * task.panel_chunks;
      m0 = g.m * chunk / task.row_chunks, m1 = g.m * (chunk + 1) / task.row_chunks;
      p0 = unit - chunk * task.panel_chunks, p1 = last - chunk * task.panel_chunks;
    }
    begin += last - unit;
    if (m1 <= m0 || p1 <= p0) continue;
    const int64_t i0 = member / g.batch[1], i1 = member % g.batch[1];
    Operands o;
    o.a = g.a + i0 * g.a_batch[0] + i1 * g.a_batch[1];
    o.b = g.b + i0 * g.b_batch[0] + i1 * g.b_batch[1];
    o.c = g.c + i0 * g.c_batch[0] + i1 * g.c_batch[1];
    o.residual = g.residual ? g.residual + i0 * g.residual_batch[0] + i1 * g.residual_batch[1] : nullptr;
    o.first_row = member * g.m;
    member_rectangle(g, o, m0, m1, p0, p1, scratch);
  }
}

} // namespace

int64_t gemm_f32_num_tasks(GemmF32Task *task, int32_t num_workers) {
  const GemmF32 &g = task->gemm;
  const int64_t members = g.batch[0] * g.batch[1], panels = divide_up(g.n, kPanel);
  if (g.m <= 0 || g.n <= 0 || members <= 0) return 0;
  task->row_chunks = 1;
  task->panel_chunks = panels;
  if (num_workers > 1 && members < 4 * num_workers) {
    const int64_t tiles = divide_up(g.m, kTileRows);
    if (g.m > 4 * g.n || (panels < num_workers && tiles >= 2 * num_workers)) { // rows: each worker reads all of B, and A once
      task->row_chunks = tiles;
      task->panel_chunks = 1;
    } else if (members * panels < 4 * num_workers && members * panels % num_workers != 0 && tiles > 1) { // both
      const int64_t wanted = divide_up(4 * num_workers, members * panels), most = divide_up(tiles, 2);
      task->row_chunks = wanted < most ? wanted : most;
    }
  }
  return members * task->row_chunks * task->panel_chunks;
}

void gemm_f32_task(void *task, int64_t begin, int64_t end, int32_t worker) {
  const GemmF32Task &t = *static_cast<const GemmF32Task *>(task);
  units(t, begin, end, t.scratch ? t.scratch + worker * t.scratch_stride_bytes : nullptr);
}

void gemm_f32(sealift_frame *frame, const GemmF32 &gemm) {
  if (gemm.m * gemm.n * gemm.k < kForkWork && gemm.batch[0] == 1 && gemm.batch[1] == 1) {
    if (gemm.m <= 0 || gemm.n <= 0) return;
    const Operands operands{gemm.a, gemm.b, gemm.residual, gemm.c, 0};
    if (gemm.b_layout == kBPanel32 && gemm.k <= kBlockDepth && gemm.m <= kBlockRows && !gemm.epilogue && !takes_gemv(gemm)) { // one block a panel
      Block s; // field by field: the compiler clears an initialised one with a slow string instruction first
      s.r0 = 0, s.r1 = gemm.m, s.p = 0, s.k0 = 0, s.depth = gemm.k;
      s.a = gemm.a, s.lda = gemm.lda, s.b = gemm.b, s.next = nullptr;
      s.first = s.last = true;
      for (; s.p * kPanel < gemm.n; s.p++, s.b += gemm.k * kPanel) multiply_block(gemm, operands, s);
    } else {
      member_rectangle(gemm, operands, 0, gemm.m, 0, divide_up(gemm.n, kPanel), frame->scratch);
    }
    return;
  }
  GemmF32Task task;
  task.gemm = gemm;
  task.scratch = frame->scratch;
  task.scratch_stride_bytes = frame->scratch_stride_bytes;
  const bool alone = frame->num_workers <= 1 || gemm.m * gemm.n * gemm.k * gemm.batch[0] * gemm.batch[1] < kForkWork;
  const int64_t count = gemm_f32_num_tasks(&task, alone ? 1 : frame->num_workers);
  if (count == 0) return;
  if (alone || count == 1) gemm_f32_task(&task, 0, count, 0);
  else frame->host->parallel_for(frame, count, 1, gemm_f32_task, &task);
}

} // namespace SEALIFT_NS
