// The register tile of a convolution: a few neighbouring positions of a row of out times one or two vectors of channels, over any list of taps.
//
// It is the GEMM's tile (gemm/tile.h, where the form of its inner loop is explained) with the rows of A found anew for every segment of k.
#ifndef SEALIFT_KERNELS_CONV_CONV_TILE_H
#define SEALIFT_KERNELS_CONV_CONV_TILE_H

#include "../gemm/activations.h"
#include "../gemm/lanes.h"
#include "../gemm/tile.h"

namespace SEALIFT_NS {
namespace {

// A stretch of k along which x is contiguous: a tap's input channels, or those of a whole row of taps.
struct Segment {
  int64_t a, b, k; // offsets from ConvTile::a and ::b, in elements; length
};

struct ConvTile {
  const float *a;
  int64_t lda; // between neighbouring positions
  const float *b;
  const Segment *segments;
  int64_t num_segments;
  float *c;
  int64_t ldc;
  const float *bias;
  const float *residual;
  int64_t ldr;
  const char *prefetch; // a share of the next block of weights, fetched into L2 at an even pace; advanced
  int64_t prefetch_step_bytes;
  int32_t flags; // TileFlags
  int64_t tiles; // one after the other along the row, all of them over the same segments
};

// A zero that no loop keeps: with one register less, 14 rows of 2 vectors would spill in the middle of their products.
SEALIFT_INLINE Lanes fresh_zero() {
  Lanes zero{};
#if SEALIFT_LANES == SEALIFT_DEFAULT_LANES
  asm volatile("" : "+v"(zero));
#endif
  return zero;
}

// kSegment: the length of every segment, written out; 0: whatever they are.
template <int kRows, int kVectors, int kSegment = 0>
void conv_tile_kernel(ConvTile &t) {
  constexpr int kDeep = kRows * kVectors >= 8 ? 1 : kRows * kVectors >= 4 ? 2 : 4; // steps of k side by side: fewer sums would wait for each other
  Lanes sum[kDeep][kRows][kVectors];
  const int64_t lda = t.lda, ldc = t.ldc;
  float *c = t.c;
  const float *a = t.a, *residual = t.residual;
  const char *prefetch = t.prefetch;
  const int64_t prefetch_step = t.prefetch_step_bytes;
  int64_t tiles = t.tiles;
  constexpr int kPointers = (kRows + 2) / 3;
  const float *row[kPointers];
  const float *b;
  auto step = [&](int64_t apart, int kk, int d) __attribute__((always_inline)) {
    if constexpr (kRows == 3 && kVectors == 4) {
      const Lanes every[3] = {broadcast(row[0][kk]), broadcast(row[0][apart + kk]), broadcast(row[0][2 * apart + kk])};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) accumulate_three(sum[d], v, every, b + kk * kPanel + v * kWidth);
      return;
    }
    Lanes bv[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) bv[v] = load_lanes(b + kk * kPanel + v * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++) accumulate(sum[d][i], row[i / 3][(i % 3) * apart + kk], bv);
  };
  const Segment *end = t.segments + t.num_segments;
  for (;;) {
    const bool from_bias = kSegment > 0 && t.flags & kAddBias; // of so short a k, adding it later would show
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) {
      const Lanes first = from_bias ? load_lanes(t.bias + v * kWidth) : Lanes{};
#pragma GCC unroll 4
      for (int d = 0; d < kDeep; d++)
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++) sum[d][i][v] = d == 0 ? first : Lanes{};
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v += kLineVectors) __builtin_prefetch(c + i * ldc + v * kWidth, 1, 3);
    if (t.flags & kAddResidual) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v += kLineVectors) __builtin_prefetch(residual + i * t.ldr + v * kWidth, 0, 3);
    }

    for (const Segment *s = t.segments; s < end; s++) {
      b = t.b + s->b;
      int64_t k = s->k;
#pragma GCC unroll 8
      for (int g = 0; g < kPointers; g++) row[g] = a + s->a + 3 * g * lda;
      if constexpr (kSegment > 0) {
        int64_t apart = lda;
        asm("" : "+r"(apart), "+r"(b)); // opaque, or the compiler keeps every sum of offsets on the stack
#pragma GCC unroll 8
        for (int g = 0; g < kPointers; g++) asm("" : "+r"(row[g]));
#pragma GCC unroll 32
        for (int kk = 0; kk < kSegment; kk++) step(apart, kk, kk % kDeep);
        continue;
      }
      for (; k >= 4; k -= 4) {
#pragma GCC unroll 4
        for (int kk = 0; kk < 4; kk++) {
          if (kk % kPrefetchEvery == 0) {
            __builtin_prefetch(prefetch, 0, 2);
            prefetch += prefetch_step;
          }
          step(lda, kk, kk % kDeep);
        }
        b += 4 * kPanel;
#pragma GCC unroll 8
        for (int g = 0; g < kPointers; g++) {
          row[g] += 4;
          asm("" : "+r"(row[g]));
        }
      }
      for (; k > 0; k--) {
        step(lda, 0, 0);
        b += kPanel;
#pragma GCC unroll 8
        for (int g = 0; g < kPointers; g++) row[g] += 1;
      }
    }

#pragma GCC unroll 4
    for (int d = 1; d < kDeep; d++)
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[0][i][v] += sum[d][i][v];

    if (t.flags & kFromC) { // as in the GEMM's tile: blocks are added up
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[0][i][v] += load_lanes(c + i * ldc + v * kWidth);
    }
    if (kSegment == 0 && t.flags & kAddBias) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) {
        const Lanes bias = load_lanes(t.bias + v * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++) sum[0][i][v] += bias;
      }
    }
    if (t.flags & kRelu) {
      const Lanes zero = fresh_zero();
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[0][i][v] = larger(zero, sum[0][i][v]);
    }
    if (t.flags & kClamping) clamp_tile(t.flags, sum[0]);
    if (t.flags & kAddResidual) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[0][i][v] += load_lanes(residual + i * t.ldr + v * kWidth);
      if (t.flags & kPostRelu) {
        const Lanes zero = fresh_zero();
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; v++) sum[0][i][v] = larger(zero, sum[0][i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) store_lanes(c + i * ldc + v * kWidth, sum[0][i][v]);
    if (--tiles <= 0) break;
    a += kRows * lda, c += kRows * ldc;
    if (t.flags & kAddResidual) residual += kRows * t.ldr;
  }
  t.prefetch = prefetch;
}

using ConvTileKernel = void (*)(ConvTile &);

// 24 channels on 8 lanes: three vectors at once rather than two and one. (Three vectors of 16 are more than a panel.)
constexpr int kWideVectors = kWidth == 8 ? 3 : 2;
constexpr int kWideColumns = kWideVectors * kWidth;
constexpr int kWideRows = kWidth == 8 ? 4 : kTileRows;

#define SEALIFT_TILE_ROW(rows)                                                                                              \
  {conv_tile_kernel<rows, 1>, conv_tile_kernel<rows, 2>, conv_tile_kernel<(rows <= kWideRows ? rows : 1), kWideVectors>, \
   conv_tile_kernel<(rows <= kPanelRows ? rows : 1), kPanelVectors>}
const ConvTileKernel kConvTileKernels[kTileRows][4] = {
    SEALIFT_TILE_ROW(1), SEALIFT_TILE_ROW(2), SEALIFT_TILE_ROW(3), SEALIFT_TILE_ROW(4),
#if SEALIFT_LANES >= 8
    SEALIFT_TILE_ROW(5), SEALIFT_TILE_ROW(6),
#endif
#if SEALIFT_LANES >= 16
    SEALIFT_TILE_ROW(7), SEALIFT_TILE_ROW(8), SEALIFT_TILE_ROW(9), SEALIFT_TILE_ROW(10),
    SEALIFT_TILE_ROW(11), SEALIFT_TILE_ROW(12), SEALIFT_TILE_ROW(13), SEALIFT_TILE_ROW(14),
#endif
};
#undef SEALIFT_TILE_ROW

// For tiles over segments of one length that are too short for a loop to find its pace: the rows of taps of first layers over three colours (3x3: 9 and
// 7x7: 21), and 1x1 convolutions over few channels. null: there is none.
template <int kVectors, int kMost>
SEALIFT_INLINE ConvTileKernel kernel_of_segments(int64_t segment, int64_t rows) {
  if (rows != kMost && rows != kMost - 1) return nullptr;
#define SEALIFT_SEGMENT(k) case k: return rows == kMost ? conv_tile_kernel<kMost, kVectors, k> : conv_tile_kernel<kMost - 1, kVectors, k>
  switch (segment) {
    SEALIFT_SEGMENT(9);
    SEALIFT_SEGMENT(16);
    SEALIFT_SEGMENT(21);
    SEALIFT_SEGMENT(24);
    SEALIFT_SEGMENT(32);
  default: return nullptr;
  }
#undef SEALIFT_SEGMENT
}
SEALIFT_INLINE ConvTileKernel kernel_of_segments(int vectors, int64_t segment, int64_t rows) {
  if (vectors == 2) return kernel_of_segments<2, kTileRows>(segment, rows);
  if (vectors == kPanelVectors) return kernel_of_segments<kPanelVectors, kPanelRows>(segment, rows);
  return nullptr;
}

} // namespace
} // namespace SEALIFT_NS
#endif
