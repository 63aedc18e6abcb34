// f32 convolution, compiled once per ISA. Read bottom up: conv_f32 picks the path and splits the work, region() walks cache blocks, edge_tile() and
// conv_tile_kernel() multiply.
//
// The product is an implicit GEMM: rows are output positions, columns output channels, k runs over (kh, kw, input channel). A tile takes neighbouring
// positions of one row of out, so that a tap's inputs lie at a constant distance from each other; no position outside x is ever read. Where a tap falls
// outside x for some of a tile's positions, a lower tile takes that tap for the others, and continues from their sums; of few channels, the tile reads a
// copy of its inputs with zeros there.
//
// A transposed convolution runs through the same code: positions whose column has the same remainder by the stride see the same taps and form a row.
#include "conv.h"

#include "../../contracts/sealift_model.h"
#include "conv_band.h"
#include "conv_finish.h"
#include "conv_plan.h"
#include "conv_tile.h"

namespace SEALIFT_NS {
namespace {

constexpr int64_t kNearCacheBytes = kWidth == 16 ? 1 << 20 : 256 << 10; // of L2, for x
constexpr int64_t kSmallBytes = 64 << 10;                 // of weights, below which nothing is fetched ahead
constexpr int64_t kPrefetchTiles = 64;                    // the calls over which the next block is fetched
constexpr int64_t kMostInRow = 1024;                      // input channels up to which a 1x1 convolution is done here, as one long row
constexpr int64_t kForkWork = 1 << 17;                    // multiply-adds below which a fork costs more than it saves

// The tile being computed: `count` positions, t.c and t.ldc already say where their sums go. `after`: what the last call does besides.
struct TileCall {
  ConvTile t;
  int64_t count;
  int vectors;
  int32_t after;
};

SEALIFT_INLINE void run(TileCall &call, int64_t count) { kConvTileKernels[count - 1][call.vectors - 1](call.t); }

// A tile inside x whose segments are all `segment` long; 0: of any lengths.
SEALIFT_INLINE void run_whole(TileCall &call, int64_t count, int64_t segment) {
  const ConvTileKernel kernel = kernel_of_segments(call.vectors, segment, count);
  if (kernel) kernel(call.t);
  else run(call, count);
}

// The length that a block's segments have in common; 0: none.
SEALIFT_INLINE int64_t common_length(const Block &b) {
  for (int64_t i = 1; i < b.num_whole; i++)
    if (b.whole[i].k != b.whole[0].k) return 0;
  return b.num_whole > 0 ? b.whole[0].k : 0;
}

// A tile of which some taps fall outside x. h and w are the first position's corner in x (forward) or its place in out (transposed).
__attribute__((noinline)) void edge_tile(const Plan &p, const View &v, const Block &b, int64_t h, int64_t w, TileCall &call) {
  const ConvF32 &c = p.conv;
  const bool adjoins = taps_adjoin(p, v);
  const int64_t step = p.transposed ? 1 : c.stride_w, count = call.count;
  Segment full[kMaxTaps], part[kMaxTaps], same[kMaxTaps];
  int32_t low[kMaxTaps], high[kMaxTaps];
  int64_t num_full = 0, num_part = 0;
  int64_t kh = p.taps > 0 ? b.tap0 / c.kernel_w : 0, kw = p.taps > 0 ? b.tap0 % c.kernel_w - 1 : 0;
  for (int64_t tap = b.tap0; tap < b.tap1; tap++) {
    if (++kw == c.kernel_w) kw = 0, kh++;
    int64_t y, x;
    if (p.transposed) {
      y = h + c.pad_h - kh * c.dilation_h, x = w + c.pad_w - kw * c.dilation_w;
      if (y % c.stride_h != 0 || x % c.stride_w != 0) continue;
      y /= c.stride_h, x /= c.stride_w;
    } else {
      y = h + kh * c.dilation_h, x = w + kw * c.dilation_w;
    }
    if (y < v.h0 || y >= v.h1) continue;
    const int64_t from = x < v.w0 ? divide_up(v.w0 - x, step) : 0;
    int64_t to = x < v.w1 ? (v.w1 - 1 - x) / step + 1 : 0;
    if (to > count) to = count;
    if (from >= to) continue;
    const Segment s{(y - v.h0) * v.row + (x + from * step - v.w0) * v.column + b.channel0, (tap - b.tap0) * p.in_channels * kPanel, b.channels};
    if (from == 0 && to == count) {
      append(full, num_full, adjoins, s);
    } else {
      part[num_part] = s;
      low[num_part] = static_cast<int32_t>(from);
      high[num_part++] = static_cast<int32_t>(to);
    }
  }
  ConvTile &t = call.t;
  float *const sums = t.c;
  t.flags = b.first ? 0 : kFromC;
  if (num_part > 0) {
    if (b.first) {
      for (int64_t i = 0; i < count; i++)
        for (int vec = 0; vec < call.vectors; vec++) store_lanes(sums + i * t.ldc + vec * kWidth, Lanes{});
    }
    t.flags = kFromC;
    t.segments = same;
    for (int64_t i = 0; i < num_part; i++) {
      if (high[i] == 0) continue; // done with an earlier one of the same positions
      const int32_t from = low[i], to = high[i];
      t.num_segments = 0;
      for (int64_t j = i; j < num_part; j++) {
        if (low[j] != from || high[j] != to) continue;
        append(same, t.num_segments, adjoins, part[j]);
        high[j] = 0;
      }
      t.c = sums + from * t.ldc;
      run(call, to - from);
    }
    t.c = sums;
  }
  if (num_full > 0 || call.after != 0 || !(t.flags & kFromC)) {
    t.segments = full, t.num_segments = num_full;
    t.flags |= call.after;
    run(call, count);
  }
}

// Tiles [tile0, tile1) times one block of one panel (numbered through the groups). `next`: the block that follows, or null.
void multiply_block(const Plan &p, const View &view, int64_t tile0, int64_t tile1, int64_t panel, const Block &b, const char *next) {
  const ConvF32 &c = p.conv;
  const int64_t group = panel / p.panels, first_column = panel % p.panels * kPanel;
  const int64_t columns = p.out_channels - first_column < kPanel ? p.out_channels - first_column : kPanel;
  const int64_t strips = divide_up(columns, p.strip);
  const int64_t ldc = p.remainders * c.out_strides[2], ldr = p.remainders * c.residual_strides[2];
  const bool near = c.out_strides[3] == 1 && (!c.residual || c.residual_strides[3] == 1);
  const Split whole_row(c.out_w, p.tiles);
  const int64_t calls = (tile1 - tile0) * strips;
  const int64_t paced = calls < kPrefetchTiles ? calls : kPrefetchTiles;
  int32_t after = 0;
  if (b.last && p.in_registers) {
    if (c.bias) after |= kAddBias;
    after |= activation_flag(c.activation);
    if (c.residual) after |= kAddResidual;
    if (c.post_activation == kActivationRelu) after |= kPostRelu;
  }
  const bool needs_finish = b.last && !p.in_registers;
  const int64_t segment = common_length(b);
  alignas(64) float window[kConvWindowFloats];
  const int64_t window_columns = (p.tile_rows - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w + 1;
  Segment in_window[kMaxTaps];
  const int64_t num_in_window = p.windows ? whole_segments(in_window, p, View{window, window_columns * p.in_channels, p.in_channels, 0, 0, 0, 0}, b) : 0;
  const int64_t row_tiles = p.tiles, step_w = p.transposed ? 1 : c.stride_w;
  TileCall call;
  ConvTile &t = call.t;
  t.tiles = 1;
  t.lda = step_w * view.column;
  t.prefetch = next ? next : reinterpret_cast<const char *>(b.b);
  t.prefetch_step_bytes = next ? kPanel * 4 * kPrefetchEvery / paced : 0;
  int64_t done = 0;
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t column = first_column + strip * p.strip, channel = group * p.out_channels + column;
    const int64_t left = p.out_channels - column < p.strip ? p.out_channels - column : p.strip;
    const bool whole = near && left % kWidth == 0;
    const float *const bias = c.bias ? c.bias + channel : nullptr;
    alignas(64) float own[kTileRows * kTileColumns];
    call.vectors = static_cast<int>(divide_up(left, kWidth));
    t.b = b.b + strip * p.strip;
    t.bias = bias;
    Position at = position_of(p, tile0);
    for (int64_t tile = tile0; tile < tile1; next_row(p, at)) {
      const Split row = p.transposed ? Split((c.out_w - at.remainder + p.remainders - 1) / p.remainders, row_tiles) : whole_row;
      const int64_t end = tile1 - tile < row_tiles - at.tile ? at.tile + (tile1 - tile) : row_tiles;
      float *const out_row = c.out + image_offset(p, at.n, c.out_strides[0], c.out_stride_d) + at.h * c.out_strides[1] + at.remainder * c.out_strides[2] + channel * c.out_strides[3];
      const float *const residual_row =
          c.residual ? c.residual + image_offset(p, at.n, c.residual_strides[0], c.residual_stride_d) + at.h * c.residual_strides[1] + at.remainder * c.residual_strides[2] + channel * c.residual_strides[3]
                     : nullptr;
      View v = view;
      if (!p.bands && !p.deep) v.x += at.n * c.x_strides[0];
      v.x += group * p.in_channels;
      const int64_t y = at.h * c.stride_h - c.pad_h;
      const bool rows_inside = b.num_whole > 0 && y + b.top >= v.h0 && y + b.bottom < v.h1;
      const int64_t least = v.w0 - b.left, most = v.w1 - b.right; // of a tile inside: first corner, and past its last
      const float *const corner = v.x + (y - v.h0) * v.row - v.w0 * v.column;
      for (int64_t i = at.tile; i < end; i++) {
        const int64_t j = row.start(i), count = row.start(i + 1) - j;
        if (count <= 0) continue;
        if (done++ >= paced) t.prefetch_step_bytes = 0;
        call.count = count;
        float *const out = out_row + j * ldc;
        const float *const residual = residual_row ? residual_row + j * ldr : nullptr;
        if (whole) {
          t.c = out, t.ldc = ldc;
          t.residual = residual, t.ldr = ldr;
          call.after = after;
        } else {
          t.c = own, t.ldc = p.strip;
          call.after = 0;
          if (!b.first)
            for (int64_t r = 0; r < count; r++) gather_channels(own + r * p.strip, out + r * ldc, c.out_strides[3], left);
        }
        const int64_t x = j * c.stride_w - c.pad_w;
        if (rows_inside && x >= least && x + (count - 1) * step_w < most) {
          t.a = corner + x * v.column;
          t.segments = b.whole, t.num_segments = b.num_whole;
          t.flags = (b.first ? 0 : kFromC) | call.after;
          if (whole && !needs_finish) { // and the tiles like it that follow
            const int64_t like = row.alike(i, end), inside = ((most - 1 - x) / step_w + 1) / count;
            t.tiles = like < inside ? like : inside;
            if (t.tiles > end - i) t.tiles = end - i;
          }
          run_whole(call, count, segment);
          i += t.tiles - 1, done += t.tiles - 1;
          t.tiles = 1;
        } else if (p.windows) {
          copy_window(p, v, y, x, window_columns, window);
          t.a = window;
          t.segments = in_window, t.num_segments = num_in_window;
          t.flags = (b.first ? 0 : kFromC) | call.after;
          run_whole(call, count, segment);
        } else {
          t.a = v.x;
          edge_tile(p, v, b, p.transposed ? at.h : y, p.transposed ? at.remainder + j * p.remainders : x, call);
        }
        if (whole) {
          if (needs_finish)
            for (int64_t r = 0; r < count; r++) finish_channels(c, out + r * ldc, left, bias, residual ? residual + r * ldr : nullptr);
        } else {
          for (int64_t r = 0; r < count; r++) {
            if (b.last) finish_channels(c, own + r * p.strip, left, bias, residual ? residual + r * ldr : nullptr);
            scatter_channels(out + r * ldc, c.out_strides[3], own + r * p.strip, left);
          }
        }
      }
      tile += end - at.tile;
    }
  }
}

// The generated epilogue of one finished panel, a run of positions at a time.
void call_epilogue(const Plan &p, int64_t tile0, int64_t tile1, int64_t panel) {
  const ConvF32 &c = p.conv;
  const int64_t n0 = panel / p.panels * p.out_channels + panel % p.panels * kPanel;
  const int64_t end = (panel / p.panels + 1) * p.out_channels, n1 = n0 + kPanel < end ? n0 + kPanel : end;
  Position at = position_of(p, tile0);
  for (int64_t tile = tile0; tile < tile1; next_row(p, at)) {
    const Split row((c.out_w - at.remainder + p.remainders - 1) / p.remainders, p.tiles);
    const int64_t end = tile1 - tile < p.tiles - at.tile ? at.tile + (tile1 - tile) : p.tiles;
    const int64_t j0 = row.start(at.tile), j1 = row.start(end), each = p.remainders == 1 ? j1 - j0 : 1;
    for (int64_t j = j0; j < j1; j += each) {
      const int64_t w = at.remainder + j * p.remainders, m = (at.n * c.out_h + at.h) * c.out_w + w;
      c.epilogue(c.epilogue_ctx, c.out + image_offset(p, at.n, c.out_strides[0], c.out_stride_d) + at.h * c.out_strides[1] + w * c.out_strides[2] + n0, c.out_strides[2], m, m + each, n0, n1);
    }
    tile += end - at.tile;
  }
}

void tiles_times_panels(const Plan &p, const View &view, const Slice &slice, int64_t tile0, int64_t tile1, int64_t panel0, int64_t panel1) {
  const bool fetch = (panel1 - panel0) * p.depth * kPanel * 4 > kSmallBytes;
  Block b;
  for (int64_t panel = panel0; panel < panel1; panel++) {
    const float *weights = p.conv.w + (panel * p.conv.kernel_d + slice.index) * p.depth * kPanel;
    for (int64_t i = 0; i < p.blocks; i++) {
      make_block(b, p, view, slice, i, weights);
      const float *next = b.b + ((b.tap1 - b.tap0 - 1) * p.in_channels + b.channels) * kPanel;
      const bool ends = i + 1 == p.blocks && (p.deep || panel + 1 == panel1);
      multiply_block(p, view, tile0, tile1, panel, b, fetch && !ends ? reinterpret_cast<const char *>(next) : nullptr);
    }
    if (p.conv.epilogue && slice.last) call_epilogue(p, tile0, tile1, panel);
  }
}

// The slice of x that slice kd of the kernel meets for slice d of out; -1: none.
SEALIFT_INLINE int64_t slice_met(const Plan &p, int64_t d, int64_t kd) {
  const ConvF32 &c = p.conv;
  int64_t z = p.transposed ? d + c.pad_d - kd * c.dilation_d : d * c.stride_d - c.pad_d + kd * c.dilation_d;
  if (p.transposed) {
    if (z % c.stride_d != 0) return -1;
    z /= c.stride_d;
  }
  return z >= 0 && z < c.in_d ? z : -1;
}

// Tiles [from, to) - lines of out where bands are copied - of panels [panel0, panel1) for one slice of the kernel. `x`: the image's slice, or the first of
// all images where `image` is negative.
void region_of_slice(const Plan &p, const Slice &slice, const float *x, int64_t image, int64_t from, int64_t to, int64_t panel0, int64_t panel1, char *scratch) {
  const ConvF32 &c = p.conv;
  if (!slice.exists) {
    const int64_t tiles = p.bands ? p.remainders * p.tiles : 1;
    return tiles_times_panels(p, View{x, 0, 0, 0, 0, 0, 0}, slice, from * tiles, to * tiles, panel0, panel1);
  }
  if (p.bands) {
    const int64_t most = conv_f32_band(c, p.transposed).out_rows, tiles = p.remainders * p.tiles;
    while (from < to) {
      const int64_t h0 = from % c.out_h;
      int64_t lines = to - from < most ? to - from : most;
      if (h0 + lines > c.out_h) lines = c.out_h - h0;
      const float *start = image < 0 ? x + from / c.out_h * c.x_strides[0] : x;
      const View v = copy_band(p, start, h0, h0 + lines, reinterpret_cast<float *>(scratch));
      tiles_times_panels(p, v, slice, from * tiles, (from + lines) * tiles, panel0, panel1);
      from += lines;
    }
    return;
  }
  const View v{x, c.x_strides[1], c.x_strides[2], 0, c.in_h, 0, c.in_w};
  // As many tiles at a time as let their part of x stay in L2 while the panels pass.
  const int64_t tile_bytes = (p.transposed ? p.tile_rows : p.tile_rows * c.stride_w * c.stride_h) * p.in_channels * 4 + 1;
  int64_t fit = kNearCacheBytes / tile_bytes - (c.kernel_h - 1) * c.dilation_h * p.tiles;
  if (fit < 16) fit = 16;
  const int64_t parts = divide_up(to - from, fit);
  for (int64_t i = 0; i < parts; i++) tiles_times_panels(p, v, slice, from + (to - from) * i / parts, from + (to - from) * (i + 1) / parts, panel0, panel1);
}

void region(const Plan &p, int64_t from, int64_t to, int64_t panel0, int64_t panel1, char *scratch) {
  const ConvF32 &c = p.conv;
  if (!p.deep) return region_of_slice(p, {0, true, true, true}, c.x, -1, from, to, panel0, panel1, scratch);
  const int64_t each = p.bands ? c.out_h : c.out_h * p.remainders * p.tiles;
  while (from < to) {
    const int64_t image = from / each, n = image / c.out_d, d = image % c.out_d;
    const int64_t end = (image + 1) * each < to ? (image + 1) * each : to;
    Slice slice{0, true, true, false};
    const float *x = c.x;
    bool any = false;
    for (int64_t kd = 0; kd < c.kernel_d; kd++) { // one behind, to know the last
      const int64_t z = slice_met(p, d, kd);
      if (z < 0) continue;
      if (any) {
        slice.last = false;
        region_of_slice(p, slice, x, image, from, end, panel0, panel1, scratch);
      }
      slice = {kd, !any, true, true};
      x = c.x + n * c.x_strides[0] + z * c.x_stride_d;
      any = true;
    }
    region_of_slice(p, slice, x, image, from, end, panel0, panel1, scratch);
    from = end;
  }
}

struct ConvTask {
  Plan plan;
  char *scratch;
  int64_t scratch_stride_bytes;
  int64_t rows, row_chunks, panel_chunks; // rows: tiles, or lines where bands are copied
};

void conv_task(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const ConvTask &t = *static_cast<const ConvTask *>(arg);
  char *scratch = t.scratch ? t.scratch + worker * t.scratch_stride_bytes : nullptr;
  const int64_t panels = t.plan.panels * t.plan.conv.groups;
  while (begin < end) {
    if (t.panel_chunks == 1) return region(t.plan, t.rows * begin / t.row_chunks, t.rows * end / t.row_chunks, 0, panels, scratch);
    const int64_t chunk = begin / t.panel_chunks, panel0 = begin % t.panel_chunks;
    const int64_t panel1 = panel0 + (end - begin) < panels ? panel0 + (end - begin) : panels;
    region(t.plan, t.rows * chunk / t.row_chunks, t.rows * (chunk + 1) / t.row_chunks, panel0, panel1, scratch);
    begin += panel1 - panel0;
  }
}

void run_plan(sealift_frame *frame, const ConvF32 &c, bool transposed) {
  if (c.batch <= 0 || c.out_d <= 0 || c.out_h <= 0 || c.out_w <= 0 || c.out_c <= 0) return;
  ConvTask task;
  make_plan(task.plan, c, transposed);
  const Plan &p = task.plan;
  task.scratch = frame->scratch;
  task.scratch_stride_bytes = frame->scratch_stride_bytes;
  const int64_t lines = c.batch * c.out_d * c.out_h, panels = p.panels * c.groups;
  const int64_t work = lines * c.out_w * c.out_c * p.depth * c.kernel_d / (transposed ? c.stride_d * c.stride_h * c.stride_w : 1);
  const int64_t workers = work < kForkWork ? 1 : frame->num_workers;
  task.rows = p.bands ? lines : lines * p.remainders * p.tiles;
  task.row_chunks = 1;
  task.panel_chunks = panels;
  if (workers > 1) {
    const bool heavy = p.depth * c.kernel_d * c.out_c > c.batch * c.in_d * c.in_h * c.in_w * c.in_c; // each worker better reads a part of the weights and all of x
    const bool even = panels % workers == 0 || panels >= 4 * workers;
    if (!(heavy && even)) {
      if (task.rows >= 4 * workers || panels == 1) {
        task.row_chunks = task.rows;
        task.panel_chunks = 1;
      } else {
        task.row_chunks = task.rows;
      }
    }
  }
  const int64_t count = task.row_chunks * task.panel_chunks;
  if (workers <= 1 || count == 1) conv_task(&task, 0, count, 0);
  else frame->host->parallel_for(frame, count, 1, conv_task, &task);
}

// Whether positions follow each other at one distance, so that an image is one matrix.
SEALIFT_INLINE bool is_matrix(const int64_t *strides, int64_t height, int64_t width) { return strides[3] == 1 && (height == 1 || strides[1] == width * strides[2]); }

// A 1x1 convolution as a product of matrices, where the strides allow it.
bool run_as_gemm(sealift_frame *frame, ConvF32 c) {
  if (c.in_d != 1 || c.out_d != 1 || c.kernel_d != 1) { // slices that follow each other are more lines of one
    if (c.kernel_d != 1 || c.stride_d != 1 || c.pad_d != 0 || c.out_d != c.in_d) return false;
    if (c.x_stride_d != c.in_h * c.x_strides[1] || c.out_stride_d != c.out_h * c.out_strides[1]) return false;
    if (c.residual && c.residual_stride_d != c.out_h * c.residual_strides[1]) return false;
    c.in_h *= c.in_d, c.out_h *= c.out_d;
    c.in_d = c.out_d = 1;
  }
  if (c.kernel_h != 1 || c.kernel_w != 1 || c.stride_h != 1 || c.stride_w != 1 || c.pad_h != 0 || c.pad_w != 0 || c.groups != 1) return false;
  if (c.out_h != c.in_h || c.out_w != c.in_w) return false;
  if (!is_matrix(c.x_strides, c.in_h, c.in_w) || !is_matrix(c.out_strides, c.out_h, c.out_w)) return false;
  if (c.residual && !is_matrix(c.residual_strides, c.out_h, c.out_w)) return false;
  GemmF32 g;
  g.a = c.x, g.lda = c.x_strides[2];
  g.b = c.w;
  g.c = c.out, g.ldc = c.out_strides[2];
  g.bias = c.bias, g.residual = c.residual, g.ldr = c.residual_strides[2];
  g.activation = c.activation, g.post_activation = c.post_activation;
  g.epilogue = c.epilogue, g.epilogue_ctx = c.epilogue_ctx;
  const int64_t each = c.out_h * c.out_w;
  g.m = each, g.n = c.out_c, g.k = c.in_c;
  const auto follows = [&](const int64_t *strides) { return c.batch == 1 || strides[0] == each * strides[2]; };
  if (follows(c.x_strides) && follows(c.out_strides) && (!c.residual || follows(c.residual_strides))) {
    g.m *= c.batch;
  } else {
    g.batch[0] = c.batch;
    g.a_batch[0] = c.x_strides[0], g.c_batch[0] = c.out_strides[0], g.residual_batch[0] = c.residual_strides[0];
  }
  // Runs of tiles in one call beat the GEMM, whose blocks of k are shorter, until a few rows fill L2; columns that fill no vector go through its faster copies.
  if (g.m == each * c.batch && g.m >= 4 * kTileRows && c.in_c <= kMostInRow && c.out_c % kWidth == 0) {
    ConvF32 row = c;
    row.batch = row.in_h = row.out_h = 1;
    row.in_w = row.out_w = g.m;
    run_plan(frame, row, false);
    return true;
  }
  gemm_f32(frame, g);
  return true;
}

} // namespace

void conv_f32(sealift_frame *frame, const ConvF32 &conv) {
  if (conv.w_layout == kConvDepthwise) return conv_depthwise_f32(frame, conv);
  if (!run_as_gemm(frame, conv)) run_plan(frame, conv, false);
}

void conv_transpose_f32(sealift_frame *frame, const ConvTransposeF32 &conv) { run_plan(frame, conv, true); }

} // namespace SEALIFT_NS
