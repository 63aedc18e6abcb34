// Recurrent layers. A task computes, for a block of rows and 32 units, the product of h with the units' columns of every gate into a tile in L1, then
// the cell on the tile: what passes between the two never leaves the core.
#include "recurrent.h"

#include <string.h>

#include "../../contracts/sealift_model.h"
#include "../gemm/tile.h"

namespace SEALIFT_NS {
namespace {

constexpr int64_t kForkWork = 1 << 16;  // multiply-adds of a step below which a fork costs more than it saves
constexpr int64_t kBlockRows = 32;      // of a tile: 4 gates x 32 units x 32 rows are 16 KB
constexpr int kMaxGates = 4;
constexpr int64_t kRowsAhead = 24;      // of a panel, that are fetched before one row of h wants them: 3 KB

// Columns of a panel held at once, and how many runs of k they are summed in: 8 sums hide the latency of a multiply-add.
constexpr int kRowVectors = kPanel / kWidth < 8 ? kPanel / kWidth : 8;
constexpr int kRowRuns = 8 / kRowVectors;

// One row times one panel: c[0, 32) = a[0, k) b. The sums of k modulo kRowRuns are added at the end. `next`: the panel after it, for large ones lie
// beyond L2 and are read once a step.
SEALIFT_INLINE void row_times_panel(const float *a, const float *b, int64_t k, float *c, const float *next) {
  Lanes sum[kRowRuns][kRowVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRowRuns; r++)
#pragma GCC unroll 8
    for (int v = 0; v < kRowVectors; v++) sum[r][v] = Lanes{};
  int64_t p = 0;
  for (; p + kRowRuns <= k; p += kRowRuns) {
    const int64_t ahead = p + kRowsAhead;
    const float *fetch = ahead < k ? b + ahead * kPanel : next + (ahead - k) * kPanel;
#pragma GCC unroll 16
    for (int line = 0; line < kRowRuns * kPanel / 16; line++) __builtin_prefetch(fetch + 16 * line, 0, 3);
#pragma GCC unroll 8
    for (int r = 0; r < kRowRuns; r++) {
      const Lanes av = broadcast(a[p + r]);
#pragma GCC unroll 8
      for (int v = 0; v < kRowVectors; v++) sum[r][v] = multiply_add(av, load_lanes(b + (p + r) * kPanel + v * kWidth), sum[r][v]);
    }
  }
  for (; p < k; p++) {
    const Lanes av = broadcast(a[p]);
#pragma GCC unroll 8
    for (int v = 0; v < kRowVectors; v++) sum[0][v] = multiply_add(av, load_lanes(b + p * kPanel + v * kWidth), sum[0][v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kRowVectors; v++) {
    Lanes total = sum[0][v];
#pragma GCC unroll 8
    for (int r = 1; r < kRowRuns; r++) total += sum[r][v];
    store_lanes(c + v * kWidth, total);
  }
}

// Rows [0, rows) of a times the first `columns` of a panel, into c. `next`: the panel that is wanted after it.
void rows_times_panel(const float *a, int64_t lda, int64_t rows, const float *b, int64_t k, int64_t columns, float *c, int64_t ldc, const float *next) {
  if (rows == 1) return row_times_panel(a, b, k, c, next);
  const Split tiles(rows, divide_up(rows, kTileRows));
  const int64_t count = divide_up(rows, kTileRows);
  Tile tile;
  tile.lda = lda, tile.ldc = ldc, tile.k = k, tile.bias = nullptr, tile.residual = nullptr, tile.ldr = 0, tile.flags = 0;
  tile.prefetch_step_bytes = 0;
  for (int64_t j = 0; j < columns; j += kTileColumns) {
    tile.b = b + j;
    tile.prefetch = reinterpret_cast<const char *>(tile.b);
    for (int64_t i = 0; i < count; i++) {
      const int64_t first = tiles.start(i), here = tiles.start(i + 1) - first;
      tile.a = a + first * lda;
      tile.c = c + first * ldc + j;
      kTileKernels[here - 1][kTileVectors - 1](tile);
    }
  }
}

SEALIFT_INLINE Vec<float> load_first(const float *p, int64_t n) { return n >= kLanes ? load(p) : load_partial(p, n); }
SEALIFT_INLINE void store_first(float *p, Vec<float> v, int64_t n) { n >= kLanes ? store(p, v) : store_partial(p, v, n); }

// One row's cell over units [0, units): `gates` and `bias` at those units of the first gate, `product` the row of the tile.
struct CellRow {
  const float *gates, *bias, *product, *h;
  float *c, *out;
  int64_t hidden, units;  // `hidden` lies between two gates of `gates` and `bias`
};

template <int32_t kCell>
void cell_row(const CellRow &r) {
  const auto sum = [&](int gate, int64_t j, int64_t n) __attribute__((always_inline)) {
    Vec<float> x = load(r.product + gate * kPanel + j);
    if (r.bias) x = x + load_first(r.bias + gate * r.hidden + j, n);
    return x;
  };
  const auto given = [&](int gate, int64_t j, int64_t n) __attribute__((always_inline)) { return load_first(r.gates + gate * r.hidden + j, n); };
  for (int64_t j = 0; j < r.units; j += kLanes) {
    const int64_t n = r.units - j;
    Vec<float> h;
    if constexpr (kCell == kCellLstm) {
      const Vec<float> in = sigmoid(sum(0, j, n) + given(0, j, n)), forget = sigmoid(sum(1, j, n) + given(1, j, n));
      const Vec<float> candidate = tanh(sum(2, j, n) + given(2, j, n)), show = sigmoid(sum(3, j, n) + given(3, j, n));
      const Vec<float> c = forget * load_first(r.c + j, n) + in * candidate;
      store_first(r.c + j, c, n);
      h = show * tanh(c);
    } else if constexpr (kCell == kCellGru) {
      const Vec<float> reset = sigmoid(sum(0, j, n) + given(0, j, n)), keep = sigmoid(sum(1, j, n) + given(1, j, n));
      const Vec<float> fresh = tanh(given(2, j, n) + reset * sum(2, j, n)), before = load_first(r.h + j, n);
      h = (before - fresh) * keep + fresh;
    } else {
      const Vec<float> x = sum(0, j, n) + given(0, j, n);
      if constexpr (kCell == kCellTanh)
        h = tanh(x);
      else
        h = select(x < splat<float>(0.0f), splat<float>(0.0f), x);  // keeps NaN and -0.0, as eager does
    }
    store_first(r.out + j, h, n);
  }
}

struct StepTask {
  const RecurrentF32 *layer;
  int64_t step, blocks, panels;  // row blocks, panels of a gate
};

int num_gates(int32_t cell) { return cell == kCellLstm ? 4 : cell == kCellGru ? 3
                                                                              : 1; }

// Where direction d's h of the step before stands, and the distance between its rows.
const float *previous(const RecurrentF32 &l, int64_t d, int64_t step, int64_t *stride) {
  if (step == 0) {
    *stride = l.size;
    return l.h0 + d * l.batch * l.size;
  }
  *stride = l.out_batch;
  return l.out + (d == 0 ? step - 1 : l.steps - step) * l.out_step + d * l.size;
}

// Every other step walks its units backwards, so that the weights of the last ones, still in L2, are its first.
void step_units(void *arg, int64_t begin, int64_t end, int32_t) {
  const StepTask &task = *static_cast<const StepTask *>(arg);
  const RecurrentF32 &l = *task.layer;
  const int gates = num_gates(l.cell);
  const int64_t toward = task.step % 2 == 0 ? 1 : -1;
  const int64_t ldt = gates * kPanel;
  alignas(64) float tile[kBlockRows * kMaxGates * kPanel];
  for (int64_t i = begin; i < end; i++) {
    const int64_t unit = toward > 0 ? i : begin + end - 1 - i;
    const int64_t d = unit / (task.blocks * task.panels), block = unit / task.panels % task.blocks, panel = unit % task.panels;
    const Split rows(l.batch, task.blocks);
    const int64_t first = rows.start(block), count = rows.start(block + 1) - first;
    const int64_t j0 = panel * kPanel, units = l.hidden - j0 < kPanel ? l.hidden - j0 : kPanel;
    const RecurrentDirection &from = l.direction[d];
    int64_t ldh;
    const float *h = previous(l, d, task.step, &ldh) + first * ldh;
    const int64_t follows = panel + toward >= 0 && panel + toward < task.panels ? panel + toward : panel;
    const auto panel_of = [&](int gate, int64_t at) { return from.w + (gate * task.panels + at) * l.size * kPanel; };
    for (int g = 0; g < gates; g++)
      rows_times_panel(h, ldh, count, panel_of(g, panel), l.size, units, tile + g * kPanel, ldt, g + 1 < gates ? panel_of(g + 1, panel) : panel_of(0, follows));
    const int64_t at = d == 0 ? task.step : l.steps - 1 - task.step;
    for (int64_t b = 0; b < count; b++) {
      const int64_t row = first + b;
      CellRow r;
      r.gates = from.gates + at * from.gates_step + row * from.gates_batch + j0;
      r.bias = from.bias ? from.bias + j0 : nullptr;
      r.product = tile + b * ldt;
      r.h = h + b * ldh + j0;
      r.c = l.cn ? l.cn + (d * l.batch + row) * l.hidden + j0 : nullptr;
      r.out = from.w_proj ? l.raw + (d * l.batch + row) * l.hidden + j0 : l.out + at * l.out_step + row * l.out_batch + d * l.size + j0;
      r.hidden = l.hidden, r.units = units;
      switch (l.cell) {
        case kCellLstm: cell_row<kCellLstm>(r); break;
        case kCellGru: cell_row<kCellGru>(r); break;
        case kCellTanh: cell_row<kCellTanh>(r); break;
        default: cell_row<kCellRelu>(r);
      }
    }
  }
}

// The projection of a step: rows of raw times w_proj^T into out. A unit is a direction, a block of rows, a panel of `size`.
void step_projection(void *arg, int64_t begin, int64_t end, int32_t) {
  const StepTask &task = *static_cast<const StepTask *>(arg);
  const RecurrentF32 &l = *task.layer;
  const int64_t panels = divide_up(l.size, kPanel);
  alignas(64) float tile[kBlockRows * kPanel];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t d = unit / (task.blocks * panels), block = unit / panels % task.blocks, panel = unit % panels;
    const Split rows(l.batch, task.blocks);
    const int64_t first = rows.start(block), count = rows.start(block + 1) - first;
    const int64_t j0 = panel * kPanel, columns = l.size - j0 < kPanel ? l.size - j0 : kPanel;
    const int64_t at = d == 0 ? task.step : l.steps - 1 - task.step;
    const float *w = l.direction[d].w_proj + panel * l.hidden * kPanel;
    const float *next = panel + 1 < panels ? w + l.hidden * kPanel : w;
    rows_times_panel(l.raw + (d * l.batch + first) * l.hidden, l.hidden, count, w, l.hidden, columns, tile, kPanel, next);
    for (int64_t i = 0; i < count; i++)
      memcpy(l.out + at * l.out_step + (first + i) * l.out_batch + d * l.size + j0, tile + i * kPanel, static_cast<size_t>(columns) * sizeof(float));
  }
}

void copy_rows(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(columns) * sizeof(float));
}

}  // namespace

void recurrent_f32(sealift_frame *frame, const RecurrentF32 &l) {
  if (l.batch <= 0 || l.hidden <= 0) return;
  if (l.cn) copy_rows(l.cn, l.hidden, l.c0, l.hidden, l.directions * l.batch, l.hidden);
  StepTask task;
  task.layer = &l;
  task.panels = divide_up(l.hidden, kPanel);
  task.blocks = divide_up(l.batch, kBlockRows);
  const int64_t units = task.blocks * task.panels, projected = task.blocks * divide_up(l.size, kPanel); // of a direction
  const int64_t work = l.directions * l.batch * l.hidden * num_gates(l.cell) * l.size;
  const bool has_projection = l.direction[0].w_proj != nullptr;
  if (frame->num_workers <= 1 || l.directions * units == 1 || work < kForkWork) {
    for (int64_t d = 0; d < l.directions; d++) // one after the other: more of its weights stay near
      for (task.step = 0; task.step < l.steps; task.step++) {
        step_units(&task, d * units, (d + 1) * units, 0);
        if (has_projection) step_projection(&task, d * projected, (d + 1) * projected, 0);
      }
  } else {
    for (task.step = 0; task.step < l.steps; task.step++) {
      frame->host->parallel_for(frame, l.directions * units, 1, step_units, &task);
      if (has_projection) frame->host->parallel_for(frame, l.directions * projected, 1, step_projection, &task);
    }
  }
  for (int64_t d = 0; d < l.directions; d++) {
    int64_t stride;
    const float *last = previous(l, d, l.steps, &stride);
    copy_rows(l.hn + d * l.batch * l.size, l.size, last, stride, l.batch, l.size);
  }
}

}  // namespace SEALIFT_NS
