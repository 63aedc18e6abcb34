// f32 depthwise convolution, compiled once per ISA: bound by loads, so a tile reads each input once for all the positions of a row that want it.
//
// The order in which an element's products are added: to the bias, taps in ascending (kh, kw), those outside x skipped, by one accumulator.
#include "../../contracts/sealift_model.h"
#include "conv.h"
#include "conv_finish.h"

namespace SEALIFT_NS {
namespace {

constexpr int64_t kForkWork = 1 << 16;    // multiply-adds below which a fork costs more than it saves
constexpr int64_t kChannelBlock = 256;    // channels whose weights stay in L1 while a row of out passes
constexpr int kMaxPositions = 8;

// A few positions of one row of out, times channels [0, count): whole vectors.
struct DepthwiseTile {
  const float *x;          // column of the first position's first tap, of the first row of taps that lies in x
  int64_t row, column;     // strides of x
  uint64_t columns;        // which columns of the tile's inputs lie in x
  const float *w;          // of that first row of taps
  int64_t rows, w_stride;  // rows of taps in x; out_c
  float *out;
  int64_t ldc, count;
  const float *bias, *residual;
  int64_t ldr;
  const float *fetch;      // what a later tile reads first, fetch_rows by positions * stride
  int64_t fetch_rows;
  int64_t tiles;           // one after the other along the row, all of them inside x where there are more than one
  int32_t flags;           // TileFlags: activations only
  bool post_relu;
};

// Which columns of a tile's inputs lie in x: all, all but the first, all but the last, all but both, or as DepthwiseTile::columns says.
enum Edges { kInside = 0, kNoFirst = 1, kNoLast = 2, kNeither = 3, kAnyEdges = 4 };

// Elements a constant distance apart, three to a pointer: [p], [p + step] and [p + 2 step] are addressing modes.
template <int kCount>
struct Walk {
  const float *at[(kCount + 2) / 3];
  SEALIFT_INLINE Walk(const float *first, int64_t step) {
#pragma GCC unroll 8
    for (int g = 0; g < (kCount + 2) / 3; g++) {
      at[g] = first + 3 * g * step;
      asm("" : "+r"(at[g])); // or the compiler keeps every product of the step
    }
  }
  SEALIFT_INLINE const float *operator()(int i, int64_t step) const { return at[i / 3] + (i % 3) * step; }
  SEALIFT_INLINE void advance(int64_t by) {
#pragma GCC unroll 8
    for (int g = 0; g < (kCount + 2) / 3; g++) {
      at[g] += by;
      asm("" : "+r"(at[g]));
    }
  }
};

template <int kCount, bool kWalks>
SEALIFT_INLINE void prefetch_columns(const float *first, int64_t step) {
  if constexpr (kWalks) {
    const Walk<kCount> walk(first, step);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; i++) __builtin_prefetch(walk(i, step), 0, 3);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; i++, first += step) {
      __builtin_prefetch(first, 0, 3);
      asm("" : "+r"(first));
    }
  }
}

// Activation, residual and activation of a tile's positions: one branch for all of them, since tests between positions would cost as much as their sums.
template <int kPositions>
SEALIFT_INLINE void finish_positions(Lanes (&sum)[kPositions][1], int32_t flags, const float *residual, int64_t ldr, bool post_relu) {
  if (flags & kRelu) {
#pragma GCC unroll 8
    for (int i = 0; i < kPositions; i++) sum[i][0] = relu(sum[i][0]);
  } else if (flags & kClamping) {
    clamp_tile(flags, sum);
  }
  if (residual) {
#pragma GCC unroll 8
    for (int i = 0; i < kPositions; i++) {
      sum[i][0] += load_lanes(residual + i * ldr);
      if (post_relu) sum[i][0] = relu(sum[i][0]);
    }
  }
}

template <int kTaps, int kStride, int kPositions, int kEdges>
void depthwise_tile(const DepthwiseTile &tile) {
  constexpr int kColumns = (kPositions - 1) * kStride + kTaps;
  constexpr int kWalked = kStride == 2 ? kColumns : 1; // of stride 1, one pointer that steps from column to column is faster
  const DepthwiseTile t = tile; // a copy, which no store can change
  const int64_t column_step = t.column, row_step = t.row, w_step = t.w_stride;
  const float *tile_x = t.x, *tile_fetch = t.fetch, *tile_residual = t.residual;
  float *tile_out = t.out;
  for (int64_t tiles = t.tiles; tiles > 0; tiles--) {
    for (int64_t j = 0; j < t.count; j += kWidth) {
      Lanes sum[kPositions][1];
      const Lanes bias = t.bias ? load_lanes(t.bias + j) : Lanes{};
#pragma GCC unroll 8
      for (int i = 0; i < kPositions; i++) sum[i][0] = bias;
      const float *x = tile_x + j, *w = t.w + j;
      Walk<kWalked> walk(x, column_step);
      for (int64_t kh = t.rows; kh > 0; kh--) {
        Lanes wv[kTaps];
#pragma GCC unroll 8
        for (int kw = 0; kw < kTaps; kw++, w += w_step) wv[kw] = load_lanes(w);
#pragma GCC unroll 32
        for (int column = 0; column < kColumns; column++) {
          const bool inside =
              kEdges == kAnyEdges ? t.columns >> column & 1 : !((kEdges & kNoFirst) && column == 0) && !((kEdges & kNoLast) && column == kColumns - 1);
          if (inside) {
            const float *at = kWalked > 1 ? walk(column, column_step) : x;
            const int first = column < kTaps ? 0 : (column - kTaps) / kStride + 1; // of the positions that want it
            const int last = column / kStride < kPositions ? column / kStride : kPositions - 1;
            if (first == last) {
              accumulate_product(sum[first][0], at, wv[column - first * kStride]);
            } else {
              const Lanes xv = load_lanes(at);
#pragma GCC unroll 8
              for (int i = first; i <= last; i++) accumulate_product(sum[i][0], xv, wv[column - i * kStride]);
            }
          }
          if constexpr (kWalked == 1) {
            x += column_step;
            asm("" : "+r"(x)); // one addition a column, not a product of the stride for each
          }
        }
        if constexpr (kWalked > 1) walk.advance(row_step);
        else x += row_step - kColumns * column_step;
      }
      float *out = tile_out + j;
      if (j % 16 == 0) { // a line of cache
        const float *fetch = tile_fetch + j;
        for (int64_t r = t.fetch_rows; r > 0; r--, fetch += row_step) prefetch_columns<kPositions * kStride, (kWalked > 1)>(fetch, column_step);
        // The next tile's lines, which its stores would wait for where out exceeds L2; past out's end the hint is void.
        prefetch_columns<kPositions, (kWalked > 1)>(out + kPositions * t.ldc, t.ldc);
      }
      finish_positions(sum, t.flags, t.residual ? tile_residual + j : nullptr, t.ldr, t.post_relu);
#pragma GCC unroll 8
      for (int i = 0; i < kPositions; i++) {
        store_lanes(out, sum[i][0]);
        out += t.ldc;
      }
    }
    tile_x += kPositions * kStride * column_step, tile_fetch += kPositions * kStride * column_step;
    tile_out += kPositions * t.ldc;
    if (t.residual) tile_residual += kPositions * t.ldr;
  }
}

using DepthwiseKernel = void (*)(const DepthwiseTile &);

// Rows of out are cut into tiles of the most positions and a shorter last one.
constexpr int kMost[3][2] = {{8, 4}, {8, 4}, {6, 4}}; // 3, 5, 7 taps; stride 1, 2. 7 taps: the sums, a row's weights and one input fill 16 registers
#define SEALIFT_DEPTHWISE_FOUR(taps, stride, edges) \
  depthwise_tile<taps, stride, 1, edges>, depthwise_tile<taps, stride, 2, edges>, depthwise_tile<taps, stride, 3, edges>, depthwise_tile<taps, stride, 4, edges>
#define SEALIFT_DEPTHWISE_SIX(taps, edges) SEALIFT_DEPTHWISE_FOUR(taps, 1, edges), depthwise_tile<taps, 1, 5, edges>, depthwise_tile<taps, 1, 6, edges>
#define SEALIFT_DEPTHWISE_EIGHT(taps, edges) SEALIFT_DEPTHWISE_SIX(taps, edges), depthwise_tile<taps, 1, 7, edges>, depthwise_tile<taps, 1, 8, edges>
const DepthwiseKernel kDepthwiseKernels[3][2][kMaxPositions] = {{{SEALIFT_DEPTHWISE_EIGHT(3, kAnyEdges)}, {SEALIFT_DEPTHWISE_FOUR(3, 2, kAnyEdges)}},
                                                                {{SEALIFT_DEPTHWISE_EIGHT(5, kAnyEdges)}, {SEALIFT_DEPTHWISE_FOUR(5, 2, kAnyEdges)}},
                                                                {{SEALIFT_DEPTHWISE_SIX(7, kAnyEdges)}, {SEALIFT_DEPTHWISE_FOUR(7, 2, kAnyEdges)}}};
const DepthwiseKernel kDepthwiseInside[3][2] = {{depthwise_tile<3, 1, 8, kInside>, depthwise_tile<3, 2, 4, kInside>},
                                                {depthwise_tile<5, 1, 8, kInside>, depthwise_tile<5, 2, 4, kInside>},
                                                {depthwise_tile<7, 1, 6, kInside>, depthwise_tile<7, 2, 4, kInside>}};
// 3 taps, the ends of short rows: half the tiles of 14 columns, all of 7.
const DepthwiseKernel kDepthwiseEnds[2][4][kMaxPositions] = {
    {{SEALIFT_DEPTHWISE_EIGHT(3, kInside)}, {SEALIFT_DEPTHWISE_EIGHT(3, kNoFirst)}, {SEALIFT_DEPTHWISE_EIGHT(3, kNoLast)}, {SEALIFT_DEPTHWISE_EIGHT(3, kNeither)}},
    {{SEALIFT_DEPTHWISE_FOUR(3, 2, kInside)}, {SEALIFT_DEPTHWISE_FOUR(3, 2, kNoFirst)}, {SEALIFT_DEPTHWISE_FOUR(3, 2, kNoLast)}, {SEALIFT_DEPTHWISE_FOUR(3, 2, kNeither)}}};
#undef SEALIFT_DEPTHWISE_EIGHT
#undef SEALIFT_DEPTHWISE_SIX
#undef SEALIFT_DEPTHWISE_FOUR

DepthwiseKernel kernel_for(int64_t taps, int64_t stride, int64_t positions, int64_t columns, int64_t from, int64_t to) {
  if (taps == 3 && from <= 1 && to >= columns - 1) return kDepthwiseEnds[stride - 1][(from == 1 ? kNoFirst : 0) | (to < columns ? kNoLast : 0)][positions - 1];
  const int64_t size = taps / 2 - 1;
  if (from == 0 && to == columns && positions == kMost[size][stride - 1]) return kDepthwiseInside[size][stride - 1];
  return kDepthwiseKernels[size][stride - 1][positions - 1];
}

struct Range {
  int64_t from, to; // taps whose position lies in [0, size)
};
SEALIFT_INLINE Range taps_inside(int64_t first, int64_t dilation, int64_t taps, int64_t size) {
  Range r;
  r.from = first < 0 ? (-first + dilation - 1) / dilation : 0;
  r.to = first < size ? (size - 1 - first) / dilation + 1 : 0;
  if (r.to > taps) r.to = taps;
  if (r.to < r.from) r.to = r.from;
  return r;
}

// Any kernel, stride, dilation, multiplier and layout: one position after the other.
void any_position(const ConvF32 &c, int64_t n, int64_t h, int64_t w, int64_t c0, int64_t c1) {
  const int64_t multiplier = c.out_c / c.groups, y0 = h * c.stride_h - c.pad_h, x0 = w * c.stride_w - c.pad_w;
  const Range rows = taps_inside(y0, c.dilation_h, c.kernel_h, c.in_h), columns = taps_inside(x0, c.dilation_w, c.kernel_w, c.in_w);
  const bool simple = multiplier == 1 && c.x_strides[3] == 1;
  for (int64_t j = c0; j < c1; j += kWidth) {
    const int64_t count = c1 - j < kWidth ? c1 - j : kWidth;
    Lanes sum{};
    for (int64_t kh = rows.from; kh < rows.to; kh++)
      for (int64_t kw = columns.from; kw < columns.to; kw++) {
        const float *x = c.x + n * c.x_strides[0] + (y0 + kh * c.dilation_h) * c.x_strides[1] + (x0 + kw * c.dilation_w) * c.x_strides[2];
        const float *wp = c.w + (kh * c.kernel_w + kw) * c.out_c + j;
        if (simple) {
          sum = count == kWidth ? multiply_add(load_lanes(x + j), load_lanes(wp), sum) : multiply_add(load_part(x + j, count), load_part(wp, count), sum);
        } else {
          float values[kWidth] = {};
          for (int64_t i = 0; i < count; i++) values[i] = x[(j + i) / multiplier * c.x_strides[3]];
          sum = multiply_add(load_lanes(values), count == kWidth ? load_lanes(wp) : load_part(wp, count), sum);
        }
      }
    float values[kWidth];
    store_lanes(values, sum);
    const float *residual = c.residual ? c.residual + n * c.residual_strides[0] + h * c.residual_strides[1] + w * c.residual_strides[2] + j * c.residual_strides[3] : nullptr;
    finish_channels(c, values, count, c.bias ? c.bias + j : nullptr, residual);
    float *out = c.out + n * c.out_strides[0] + h * c.out_strides[1] + w * c.out_strides[2] + j * c.out_strides[3];
    for (int64_t i = 0; i < count; i++) out[i * c.out_strides[3]] = values[i];
  }
}

struct DepthwiseTask {
  ConvF32 conv;
  int64_t lines, chunks, chunk_channels; // unit u is line u % lines of channel chunk u / lines
  bool fast;
};

void fast_line(const ConvF32 &c, int64_t n, int64_t h, int64_t c0, int64_t end) {
  const int64_t c1 = end - (end - c0) % kWidth;
  if (c1 < end)
    for (int64_t w = 0; w < c.out_w; w++) any_position(c, n, h, w, c1, end);
  if (c0 == c1) return;
  const int64_t most = kMost[c.kernel_w / 2 - 1][c.stride_w - 1];
  const int64_t y0 = h * c.stride_h - c.pad_h;
  const Range rows = taps_inside(y0, 1, c.kernel_h, c.in_h);
  const bool in_registers = finishes_in_registers(c);
  DepthwiseTile t;
  t.row = c.x_strides[1], t.column = c.x_strides[2];
  t.rows = rows.to - rows.from, t.w_stride = c.out_c;
  t.ldc = c.out_strides[2], t.count = c1 - c0, t.ldr = c.residual_strides[2];
  t.flags = in_registers ? activation_flag(c.activation) : 0;
  t.post_relu = in_registers && c.post_activation == kActivationRelu;
  t.w = c.w + rows.from * c.kernel_w * c.out_c + c0;
  t.bias = in_registers && c.bias ? c.bias + c0 : nullptr;
  const float *image = c.x + n * c.x_strides[0] + c0;
  for (int64_t w0 = 0, positions; w0 < c.out_w; w0 += positions * t.tiles) {
    positions = c.out_w - w0 < most ? c.out_w - w0 : most;
    const int64_t x0 = w0 * c.stride_w - c.pad_w, columns = (positions - 1) * c.stride_w + c.kernel_w;
    const Range inside = taps_inside(x0, 1, columns, c.in_w);
    // Along a row of stride 1 the row below is fetched for the next line of out (a fifth faster where x exceeds L2); of stride 2, whose lines share
    // little, the rest of the newest rows for the next tile (a tenth).
    t.fetch = image + (y0 + c.kernel_h) * t.row + (x0 + c.kernel_w - c.stride_w) * t.column;
    t.fetch_rows = y0 + c.kernel_h < c.in_h ? 1 : 0;
    if (c.stride_w == 2) {
      t.fetch = image + (y0 + c.kernel_h - 2) * t.row + (x0 + columns) * t.column;
      t.fetch_rows = y0 + c.kernel_h <= c.in_h && x0 + columns + most * 2 <= c.in_w && c.kernel_h >= 2 ? 2 : 0;
    }
    t.tiles = 1;
    if (positions == most && inside.from == 0 && inside.to == columns) {
      const int64_t fit = (c.out_w - w0) / most, reach = (c.in_w - columns - x0) / (most * c.stride_w) + 1;
      t.tiles = fit < reach ? fit : reach;
    }
    t.columns = (uint64_t(1) << inside.to) - (uint64_t(1) << inside.from);
    t.x = image + (y0 + rows.from) * t.row + x0 * t.column;
    t.out = c.out + n * c.out_strides[0] + h * c.out_strides[1] + w0 * c.out_strides[2] + c0;
    const float *residual = c.residual ? c.residual + n * c.residual_strides[0] + h * c.residual_strides[1] + w0 * c.residual_strides[2] + c0 : nullptr;
    t.residual = in_registers ? residual : nullptr;
    kernel_for(c.kernel_w, c.stride_w, positions, columns, inside.from, inside.to)(t);
    if (!in_registers)
      for (int64_t i = 0; i < positions * t.tiles; i++) finish_channels(c, t.out + i * t.ldc, t.count, c.bias ? c.bias + c0 : nullptr, residual ? residual + i * t.ldr : nullptr);
  }
}

void depthwise_task(void *arg, int64_t begin, int64_t end, int32_t) {
  const DepthwiseTask &t = *static_cast<const DepthwiseTask *>(arg);
  const ConvF32 &c = t.conv;
  for (int64_t u = begin; u < end; u++) {
    const int64_t line = u % t.lines, n = line / c.out_h, h = line % c.out_h;
    const int64_t c0 = u / t.lines * t.chunk_channels, c1 = c0 + t.chunk_channels < c.out_c ? c0 + t.chunk_channels : c.out_c;
    if (t.fast) fast_line(c, n, h, c0, c1);
    else
      for (int64_t w = 0; w < c.out_w; w++) any_position(c, n, h, w, c0, c1);
    if (c.epilogue)
      c.epilogue(c.epilogue_ctx, c.out + n * c.out_strides[0] + h * c.out_strides[1] + c0, c.out_strides[2], line * c.out_w, (line + 1) * c.out_w, c0, c1);
  }
}

} // namespace

void conv_depthwise_f32(sealift_frame *frame, const ConvF32 &c) {
  if (c.batch <= 0 || c.out_h <= 0 || c.out_w <= 0 || c.out_c <= 0) return;
  DepthwiseTask task;
  task.conv = c;
  task.lines = c.batch * c.out_h;
  task.chunks = (c.out_c + kChannelBlock - 1) / kChannelBlock;
  task.chunk_channels = ((c.out_c + task.chunks - 1) / task.chunks + 15) / 16 * 16;
  task.chunks = (c.out_c + task.chunk_channels - 1) / task.chunk_channels;
  task.fast = c.out_c == c.groups && c.x_strides[3] == 1 && c.out_strides[3] == 1 && (!c.residual || c.residual_strides[3] == 1) && c.dilation_h == 1 && c.dilation_w == 1 &&
              (c.kernel_w == 3 || c.kernel_w == 5 || c.kernel_w == 7) && (c.stride_w == 1 || c.stride_w == 2);
  const int64_t count = task.lines * task.chunks;
  const int64_t work = task.lines * c.out_w * c.out_c * c.kernel_h * c.kernel_w;
  if (frame->num_workers <= 1 || work < kForkWork || count == 1) depthwise_task(&task, 0, count, 0);
  else frame->host->parallel_for(frame, count, 1, depthwise_task, &task);
}

} // namespace SEALIFT_NS
