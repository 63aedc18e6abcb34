// The register tile: a few rows of A times one or two vectors of B, accumulators in registers. Shared by the GEMM and attention families.
#ifndef SEALIFT_KERNELS_GEMM_TILE_H
#define SEALIFT_KERNELS_GEMM_TILE_H

#include "activations.h"
#include "lanes.h"

namespace SEALIFT_NS {
namespace {

constexpr int kPanel = 32; // columns of a packed panel: SEALIFT_PANEL32
constexpr int kTileVectors = 2;
constexpr int kTileColumns = kTileVectors * kWidth;
constexpr int kTileRows = kWidth == 16 ? 14 : kWidth == 8 ? 6 : 4; // accumulators + 2 of B + 1 of A fill 32, 16, 16 registers
// Of 8 lanes, a whole panel: three broadcasts and four loads a step where six rows of two vectors take six and two, and 12 multiply-adds either way.
constexpr int kPanelVectors = kWidth == 8 ? 4 : kTileVectors;
constexpr int kPanelRows = kWidth == 8 ? 3 : kTileRows;
constexpr int kLineVectors = 64 / (4 * kWidth); // of a line of cache
constexpr int kPrefetchEvery = kWidth == 16 ? 1 : 2; // k-steps between two prefetches

enum TileFlags : int32_t { kFromC = 1, kAddBias = 2, kRelu = 4, kAddResidual = 8, kPostRelu = 16, kRelu6 = 32, kHardSwish = 64, kHardSigmoid = 128 };
constexpr int32_t kClamping = kRelu6 | kHardSwish | kHardSigmoid;

// The activations that cost a few instructions are in every tile; the others take a pass of their own over what has just been stored.
SEALIFT_INLINE int32_t activation_flag(int32_t activation) {
  switch (activation) {
  case kActivationRelu: return kRelu;
  case kActivationRelu6: return kRelu6;
  case kActivationHardSwish: return kHardSwish;
  case kActivationHardSigmoid: return kHardSigmoid;
  default: return 0;
  }
}
SEALIFT_INLINE bool is_cheap(int32_t activation) { return activation == kActivationNone || activation_flag(activation) != 0; }

// Sums in registers, one branch for all of them.
template <int kRows, int kVectors>
SEALIFT_INLINE void clamp_tile(int32_t flags, Lanes (&sum)[kRows][kVectors]) {
  auto each = [&](auto apply) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) sum[i][v] = apply(sum[i][v]);
  };
  if (flags & kRelu6) each([](Lanes x) __attribute__((always_inline)) { return relu6(x); });
  else if (flags & kHardSwish) each([](Lanes x) __attribute__((always_inline)) { return hard_swish(x); });
  else each([](Lanes x) __attribute__((always_inline)) { return hard_sigmoid(x); });
}

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
  const char *prefetch; // the tiles' share of the next block of B
  int64_t prefetch_step_bytes;
  int32_t flags;
  int64_t tiles = 1; // one below the other: a call of its own for each costs two to three hundredths of 192 steps
};

// The order of an element's additions may depend on its column, never on the tile's height: workers cut rows differently.
template <int kRows, int kVectors>
void tile_kernel(const Tile &t) {
  constexpr int kDeep = kVectors == 1 ? 2 : 1; // sums side by side: one vector of columns leaves registers free, and half as long a chain is more exact
  Lanes sums[kDeep][kRows][kVectors];
  Lanes(&sum)[kRows][kVectors] = sums[0];
  const int64_t lda = t.lda, ldc = t.ldc;
  float *c = t.c;
  const float *a = t.a, *residual = t.residual;
  const char *prefetch = t.prefetch;
  const int64_t prefetch_step = t.prefetch_step_bytes;
  int64_t tiles = t.tiles;
  // Three rows a pointer: [p], [p + lda], [p + 2 lda] are addressing modes, so the step along k costs no row an instruction of its own.
  constexpr int kPointers = (kRows + 2) / 3;
  const float *row[kPointers];
  const float *b;
  auto step = [&](int kk) __attribute__((always_inline)) {
    if constexpr (kRows == 3 && kVectors == 4) {
      const Lanes every[3] = {broadcast(row[0][kk]), broadcast(row[0][lda + kk]), broadcast(row[0][2 * lda + kk])};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) accumulate_three(sums[0], v, every, b + kk * kPanel + v * kWidth);
      return;
    }
    Lanes bv[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) bv[v] = load_lanes(b + kk * kPanel + v * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++) accumulate(sums[kk % kDeep][i], row[i / 3][(i % 3) * lda + kk], bv);
  };
  for (;;) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) {
        if (v % kLineVectors == 0) __builtin_prefetch(c + i * ldc + v * kWidth, 1, 3);
#pragma GCC unroll 2
        for (int d = 0; d < kDeep; d++) sums[d][i][v] = Lanes{};
      }
    }
    if (t.flags & kAddResidual) { // its rows lie too far apart for the hardware to guess, and are wanted all at once
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v += kLineVectors) __builtin_prefetch(residual + i * t.ldr + v * kWidth, 0, 3);
    }

#pragma GCC unroll 8
    for (int g = 0; g < kPointers; g++) row[g] = a + 3 * g * lda;
    b = t.b;
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
    if constexpr (kDeep == 2) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++) sum[i][0] += sums[1][i][0];
    }

    if (t.flags & kFromC) { // whole blocks are added up, not one product after the other: the error grows with the length of a chain
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[i][v] += load_lanes(c + i * ldc + v * kWidth);
    }
    if (t.flags & kAddBias) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) {
        const Lanes bias = load_lanes(t.bias + v * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++) sum[i][v] += bias;
      }
    }
    if (t.flags & kRelu) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[i][v] = relu(sum[i][v]);
    }
    if (t.flags & kClamping) clamp_tile(t.flags, sum);
    if (t.flags & kAddResidual) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sum[i][v] += load_lanes(residual + i * t.ldr + v * kWidth);
      if (t.flags & kPostRelu) {
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; v++) sum[i][v] = relu(sum[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v++) store_lanes(c + i * ldc + v * kWidth, sum[i][v]);
    if (--tiles <= 0) return;
    a += kRows * lda, c += kRows * ldc;
    if (t.flags & kAddResidual) residual += kRows * t.ldr;
  }
}

typedef float Quad __attribute__((vector_size(16)));
typedef float QuadAnywhere __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t QuadIndex __attribute__((vector_size(16)));

// Four rows of four: the unit in which matrices are transposed.
struct Quads {
  Quad row[4];
};
SEALIFT_INLINE Quad load_quad(const float *p) { return *reinterpret_cast<const QuadAnywhere *>(p); }
SEALIFT_INLINE void store_quad(float *p, Quad x) { *reinterpret_cast<QuadAnywhere *>(p) = x; }
SEALIFT_INLINE Quads load_quads(const float *p, int64_t stride) {
  return {{load_quad(p), load_quad(p + stride), load_quad(p + 2 * stride), load_quad(p + 3 * stride)}};
}
SEALIFT_INLINE Quads transpose(Quads x) {
  const Quad low01 = __builtin_shuffle(x.row[0], x.row[1], QuadIndex{0, 4, 1, 5}), high01 = __builtin_shuffle(x.row[0], x.row[1], QuadIndex{2, 6, 3, 7});
  const Quad low23 = __builtin_shuffle(x.row[2], x.row[3], QuadIndex{0, 4, 1, 5}), high23 = __builtin_shuffle(x.row[2], x.row[3], QuadIndex{2, 6, 3, 7});
  return {{__builtin_shuffle(low01, low23, QuadIndex{0, 1, 4, 5}), __builtin_shuffle(low01, low23, QuadIndex{2, 3, 6, 7}),
           __builtin_shuffle(high01, high23, QuadIndex{0, 1, 4, 5}), __builtin_shuffle(high01, high23, QuadIndex{2, 3, 6, 7})}};
}

using TileKernel = void (*)(const Tile &);

// By rows, and by one vector, two or a panel's.
#define SEALIFT_TILE_ROW(rows) {tile_kernel<rows, 1>, tile_kernel<rows, 2>, tile_kernel<(rows <= kPanelRows ? rows : 1), kPanelVectors>}
const TileKernel kTileKernels[kTileRows][3] = {
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

SEALIFT_INLINE int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// `total` in `parts` runs whose lengths differ by one at most. One part or two cost no division: small products are counted in nanoseconds.
struct Split {
  int64_t each, longer;
  SEALIFT_INLINE Split(int64_t total, int64_t parts) : each(total), longer(0) {
    if (parts == 2) {
      each = total >> 1;
      longer = total & 1;
    } else if (parts > 2) {
      each = static_cast<int64_t>(static_cast<uint32_t>(total) / static_cast<uint32_t>(parts)); // rows of a block: 32 bits hold them
      longer = total - each * parts;
    }
  }
  SEALIFT_INLINE int64_t start(int64_t i) const { return i * each + (i < longer ? i : longer); }
  SEALIFT_INLINE int64_t alike(int64_t i, int64_t end) const { return (i < longer ? longer : end) - i; } // of the runs [i, end), how many are as long as i
};

} // namespace
} // namespace SEALIFT_NS
#endif
