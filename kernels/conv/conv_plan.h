// How a convolution is cut: rows of tiles over positions, panels over channels, blocks over k; and which of its taps each block multiplies.
#ifndef SEALIFT_KERNELS_CONV_CONV_PLAN_H
#define SEALIFT_KERNELS_CONV_CONV_PLAN_H

#include "conv.h"
#include "conv_finish.h"
#include "conv_tile.h"

namespace SEALIFT_NS {
namespace {

constexpr int64_t kBlockDepth = 768;                      // steps of k between a tile's visits: a block of weights is kBlockDepth * 128 bytes
constexpr int64_t kWholeDepth = 640;                      // of k, below which it is not cut
constexpr int64_t kPanelDepth = 256;                      // of k, up to which a tile takes a whole panel: its weights, read for every tile, stay in L1;
constexpr int64_t kLongRow = 14;                          // or positions, from which it does so at any depth
constexpr int64_t kMaxTaps = 64;                          // of a block

struct Plan {
  ConvF32 conv;
  bool transposed, bands, windows; // what is copied of x: some rows, or a tile's inputs where some lie outside
  bool deep; // more than one slice somewhere: then a region is walked image by image
  int64_t in_channels, out_channels; // of a group
  int64_t panels;                    // of a group
  int64_t taps, depth;               // of a slice of the kernel
  int64_t taps_each, channel_chunks, channels_each, blocks; // how k is cut: whole taps, or the channels of one
  int64_t remainders, tiles;         // rows of positions a line of out is cut into, tiles a row
  int64_t strip, tile_rows;          // columns of a tile, and the most rows
  bool in_registers;
};

// x, or a copy of a part of it: what lies outside [h0, h1) x [w0, w1) is zero.
struct View {
  const float *x; // (h0, w0)
  int64_t row, column;
  int64_t h0, h1, w0, w1;
};

struct Position {
  int64_t n, h, remainder, tile; // n: the image, batch member * out_d + slice
};

// A slice of the kernel: all there is in two dimensions. `exists`: false for the one that stands for none, where no slice meets x.
struct Slice {
  int64_t index;
  bool first, last, exists;
};

struct Block {
  int64_t tap0, tap1, channel0, channels;
  const float *b;
  bool first, last;
  int64_t top, bottom, left, right; // reach of the taps from the first position's corner
  Segment whole[kMaxTaps];          // from that corner: for tiles that lie inside x
  int64_t num_whole;
};

// Whether columns are whole panels, or so many that half of the last one, which its low tiles take longer for, does not count.
SEALIFT_INLINE bool fills_panels(int64_t columns) { return columns % kPanel == 0 || (columns % kPanel == kPanel / 2 && columns > 4 * kPanel); }

void make_plan(Plan &p, const ConvF32 &c, bool transposed) {
  p.conv = c;
  p.transposed = transposed;
  p.bands = conv_f32_copies_bands(c, transposed);
  p.windows = conv_f32_copies_windows(c, transposed);
  p.deep = c.in_d != 1 || c.out_d != 1 || c.kernel_d != 1;
  p.in_channels = c.in_c / c.groups;
  p.out_channels = c.out_c / c.groups;
  p.panels = divide_up(p.out_channels, kPanel);
  p.taps = c.kernel_h * c.kernel_w;
  p.depth = p.taps * p.in_channels;
  p.channel_chunks = 1;
  p.channels_each = p.in_channels;
  if (p.depth <= kWholeDepth && p.taps <= kMaxTaps) {
    p.taps_each = p.taps;
  } else if (p.in_channels > kBlockDepth) {
    p.taps_each = 1;
    p.channel_chunks = divide_up(p.in_channels, kBlockDepth);
    p.channels_each = (divide_up(p.in_channels, p.channel_chunks) + 3) / 4 * 4;
    p.channel_chunks = divide_up(p.in_channels, p.channels_each);
  } else {
    p.taps_each = p.in_channels > 0 ? kBlockDepth / p.in_channels : kMaxTaps;
    if (p.taps_each > kMaxTaps) p.taps_each = kMaxTaps;
    if (p.taps_each > c.kernel_w) p.taps_each = p.taps_each / c.kernel_w * c.kernel_w;
  }
  p.blocks = p.taps_each > 0 ? divide_up(p.taps, p.taps_each) * p.channel_chunks : 1;
  if (p.blocks < 1) p.blocks = 1;
  p.remainders = transposed ? c.stride_w : 1;
  const int64_t row = divide_up(c.out_w, p.remainders);
  p.strip = kTileColumns, p.tile_rows = kTileRows;
  if (p.out_channels == kWideColumns) p.strip = kWideColumns, p.tile_rows = kWideRows;
  else if ((p.depth <= kPanelDepth || row >= kLongRow) && fills_panels(p.out_channels)) p.strip = kPanelVectors * kWidth, p.tile_rows = kPanelRows;
  p.tiles = divide_up(row, p.tile_rows);
  p.in_registers = finishes_in_registers(c);
}

// The tap's input channels follow the ones of the tap before, so that both are one segment.
SEALIFT_INLINE bool taps_adjoin(const Plan &p, const View &v) {
  return !p.transposed && p.conv.dilation_w == 1 && p.channel_chunks == 1 && v.column == p.in_channels;
}

SEALIFT_INLINE void append(Segment *segments, int64_t &count, bool adjoins, Segment s) {
  if (adjoins && count > 0 && segments[count - 1].a + segments[count - 1].k == s.a && segments[count - 1].b + segments[count - 1].k * kPanel == s.b) segments[count - 1].k += s.k;
  else segments[count++] = s;
}

// Where a block's taps lie from a tile's corner in v. Returns how many segments they are.
int64_t whole_segments(Segment *segments, const Plan &p, const View &v, const Block &b) {
  const ConvF32 &c = p.conv;
  const bool adjoins = taps_adjoin(p, v);
  int64_t count = 0, kh = b.tap0 / c.kernel_w, kw = b.tap0 % c.kernel_w;
  for (int64_t tap = b.tap0; tap < b.tap1; tap++) {
    append(segments, count, adjoins, {kh * c.dilation_h * v.row + kw * c.dilation_w * v.column + b.channel0, (tap - b.tap0) * p.in_channels * kPanel, b.channels});
    if (++kw == c.kernel_w) kw = 0, kh++;
  }
  return count;
}

void make_block(Block &b, const Plan &p, const View &v, const Slice &slice, int64_t index, const float *panel) {
  const ConvF32 &c = p.conv;
  b.tap0 = index / p.channel_chunks * p.taps_each;
  b.tap1 = !slice.exists ? b.tap0 : b.tap0 + p.taps_each < p.taps ? b.tap0 + p.taps_each : p.taps;
  b.channel0 = index % p.channel_chunks * p.channels_each;
  b.channels = p.in_channels - b.channel0 < p.channels_each ? p.in_channels - b.channel0 : p.channels_each;
  b.b = panel + (b.tap0 * p.in_channels + b.channel0) * kPanel;
  b.first = index == 0 && slice.first;
  b.last = index + 1 == p.blocks && slice.last;
  b.num_whole = 0;
  if (p.transposed || b.tap0 >= b.tap1) return;
  b.num_whole = whole_segments(b.whole, p, v, b);
  const bool one_row = b.tap0 / c.kernel_w == (b.tap1 - 1) / c.kernel_w;
  b.top = b.tap0 / c.kernel_w * c.dilation_h;
  b.bottom = (b.tap1 - 1) / c.kernel_w * c.dilation_h;
  b.left = one_row ? b.tap0 % c.kernel_w * c.dilation_w : 0;
  b.right = (one_row ? (b.tap1 - 1) % c.kernel_w : c.kernel_w - 1) * c.dilation_w;
}

SEALIFT_INLINE Position position_of(const Plan &p, int64_t tile) {
  const int64_t row = tile / p.tiles, line = row / p.remainders;
  return {line / p.conv.out_h, line % p.conv.out_h, row % p.remainders, tile % p.tiles};
}
SEALIFT_INLINE void next_row(const Plan &p, Position &at) {
  at.tile = 0;
  if (++at.remainder < p.remainders) return;
  at.remainder = 0;
  if (++at.h < p.conv.out_h) return;
  at.h = 0;
  at.n++;
}

// Where image i starts: its batch member, and its slice.
SEALIFT_INLINE int64_t image_offset(const Plan &p, int64_t i, int64_t batch_stride, int64_t slice_stride) {
  return p.conv.out_d == 1 ? i * batch_stride : i / p.conv.out_d * batch_stride + i % p.conv.out_d * slice_stride;
}

} // namespace
} // namespace SEALIFT_NS
#endif
