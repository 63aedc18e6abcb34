// f32 matrix product, compiled once per ISA. Read bottom up: gemm_f32 splits the work, rectangle() walks cache blocks, tile_kernel() multiplies.
//
// The order in which an element's products are added: k is cut into equal blocks of at most kBlockDepth, each block is summed in ascending k by one
// accumulator and continues from the sum so far. It depends on neither the split over workers nor the height of a tile. m <= 4 takes the
// bandwidth-bound kernels (gemv_kernel, dot_kernel), which have an order of their own.
#include "gemm.h"

#include "../../contracts/sealift_model.h"
#include "activations.h"
#include "lanes.h"

namespace SEALIFT_NS {
namespace {

constexpr int kPanel = 32; // columns of a packed panel: SEALIFT_PANEL32
constexpr int kTileVectors = 2;
constexpr int kTileColumns = kTileVectors * kWidth;
constexpr int kTileRows = kWidth == 16 ? 14 : kWidth == 8 ? 6 : 4; // accumulators + 2 of B + 1 of A fill 32, 16, 16 registers
constexpr int kBlockDepth = kWidth == 16 ? 384 : 256;              // a block of B is kBlockDepth * 128 bytes
constexpr int kBlockRows = kWidth == 16 ? 252 : 144;               // a block of A stays in L2
constexpr int64_t kNearCacheBytes = kWidth == 16 ? 1 << 20 : 256 << 10; // of L2, for A
constexpr int kPrefetchEvery = kWidth == 16 ? 1 : 2;                    // k-steps between two prefetches
constexpr int kGemvRows = kWidth == 16 ? 4 : kWidth == 8 ? 3 : 1;       // rows that share one pass over B when m <= 4
constexpr int64_t kGemvMaxRows = 4;
constexpr int64_t kForkWork = 1 << 17; // multiply-adds below which a fork costs more than it saves (2 to 4 us)

enum TileFlags : int32_t { kFromC = 1, kAddBias = 2, kRelu = 4, kAddResidual = 8, kPostRelu = 16 };

struct Tile {
  const float *a;
  int64_t lda;
  const float *b; // rows of kPanel floats
  float *c;
  int64_t ldc;
  int64_t k;
  const float *bias;
  const float *residual;
  int64_t ldr;
  const char *prefetch; // the tile's share of the next block of B
  int64_t prefetch_step_bytes;
  int32_t flags;
};

SEALIFT_INLINE Lanes relu(Lanes x) { return x < Lanes{} ? Lanes{} : x; } // a comparison with NaN is false: NaN stays

template <int kRows, int kVectors>
void tile_kernel(const Tile &t) {
  Lanes sum[kRows][kVectors];
  const int64_t lda = t.lda, ldc = t.ldc;
  float *c = t.c;
  if (t.flags & kFromC) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) sum[i][v] = load(c + i * ldc + v * kWidth);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++) {
      __builtin_prefetch(c + i * ldc, 1, 3);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) sum[i][v] = Lanes{};
    }
  }

  // Three rows a pointer: [p], [p + lda], [p + 2 lda] are addressing modes, so the step along k costs no row an instruction of its own.
  constexpr int kPointers = (kRows + 2) / 3;
  const float *row[kPointers];
#pragma GCC unroll 8
  for (int g = 0; g < kPointers; g++) row[g] = t.a + 3 * g * lda;
  const float *b = t.b;
  const char *prefetch = t.prefetch;
  const int64_t prefetch_step = t.prefetch_step_bytes;
  auto step = [&](int kk) __attribute__((always_inline)) {
    Lanes bv[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) bv[v] = load(b + kk * kPanel + v * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++) {
      Lanes av = broadcast(row[i / 3][(i % 3) * lda + kk]);
#ifndef SEALIFT_LANES
      if (kVectors > 1) asm("" : "+v"(av)); // one broadcast for both products, not one in each one's memory operand
#endif
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) sum[i][v] = multiply_add(av, bv[v], sum[i][v]);
    }
  };
  int64_t k = t.k;
  for (; k >= 4; k -= 4) {
#pragma GCC unroll 4
    for (int kk = 0; kk < 4; kk++) {
      if (kk % kPrefetchEvery == 0) {
        __builtin_prefetch(prefetch, 0, 2);
        prefetch += prefetch_step;
      }
      step(kk);
    }
    b += 4 * kPanel;
#pragma GCC unroll 8
    for (int g = 0; g < kPointers; g++) {
      row[g] += 4;
      asm("" : "+r"(row[g]));
    }
  }
  for (; k > 0; k--) {
    step(0);
    b += kPanel;
#pragma GCC unroll 8
    for (int g = 0; g < kPointers; g++) row[g] += 1;
  }

  if (t.flags & kAddBias) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) {
      const Lanes bias = load(t.bias + v * kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++) sum[i][v] += bias;
    }
  }
  if (t.flags & kRelu) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) sum[i][v] = relu(sum[i][v]);
  }
  if (t.flags & kAddResidual) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++) sum[i][v] += load(t.residual + i * t.ldr + v * kWidth);
    if (t.flags & kPostRelu) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; v++) sum[i][v] = relu(sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; i++)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; v++) store(c + i * ldc + v * kWidth, sum[i][v]);
}

using TileKernel = void (*)(const Tile &);

#define SEALIFT_TILE_ROW(rows) {tile_kernel<rows, 1>, tile_kernel<rows, 2>}
const TileKernel kTileKernels[kTileRows][kTileVectors] = {
    SEALIFT_TILE_ROW(1), SEALIFT_TILE_ROW(2), SEALIFT_TILE_ROW(3), SEALIFT_TILE_ROW(4),
#if SEALIFT_TARGET_ISA >= 1
    SEALIFT_TILE_ROW(5), SEALIFT_TILE_ROW(6),
#endif
#if SEALIFT_TARGET_ISA >= 2 || defined(SEALIFT_LANES)
    SEALIFT_TILE_ROW(7), SEALIFT_TILE_ROW(8), SEALIFT_TILE_ROW(9), SEALIFT_TILE_ROW(10),
    SEALIFT_TILE_ROW(11), SEALIFT_TILE_ROW(12), SEALIFT_TILE_ROW(13), SEALIFT_TILE_ROW(14),
#endif
};
#undef SEALIFT_TILE_ROW

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
      for (int v = 0; v < kVectors; v++) sum[d][i][v] = d == 0 && from_out ? load(out + i * kPanel + v * kWidth) : Lanes{};
  const float *ahead = b + kGemvPrefetchFloats;
  auto step = [&](int kk, int d) __attribute__((always_inline)) {
    __builtin_prefetch(ahead + kk * ldb, 0, 3);
    __builtin_prefetch(ahead + kk * ldb + 16, 0, 3);
    Lanes av[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; i++) av[i] = broadcast(a[i * lda + kk]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      const Lanes bv = load(b + kk * ldb + v * kWidth);
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
      store(out + i * kPanel + v * kWidth, total);
    }
}
