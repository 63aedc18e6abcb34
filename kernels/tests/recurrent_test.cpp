// Recurrent layers against their definition: every cell, both directions, projections, hidden sizes around a panel, batches around a tile and a block,
// batch-first memory, NaN, worker counts.
#include "../recurrent/recurrent_naive.h"

#include <initializer_list>

#include "test_host.h"
#include "test_support.h"

using namespace SEALIFT_NS;

namespace {

struct Case {
  int32_t cell, directions;
  int64_t steps, batch, hidden, size;
  bool bias, batch_first;
};

int64_t panels(int64_t n) { return (n + 31) / 32; }

void run_case(const Case &c, Random &random) {
  const int64_t gates = c.cell == kCellLstm ? 4 : c.cell == kCellGru ? 3
                                                                     : 1;
  const bool projected = c.size != c.hidden;
  Guarded<float> given(c.directions * c.steps * c.batch * gates * c.hidden), w(c.directions * gates * panels(c.hidden) * c.size * 32);
  Guarded<float> bias(c.directions * gates * c.hidden), w_proj(c.directions * panels(c.size) * c.hidden * 32);
  Guarded<float> h0(c.directions * c.batch * c.size), c0(c.directions * c.batch * c.hidden);
  random.fill(given, 2), random.fill(w, 0.2f), random.fill(bias, 1), random.fill(w_proj, 0.2f), random.fill(h0, 1), random.fill(c0, 1);
  Guarded<float> out(c.steps * c.batch * c.directions * c.size), hn(h0.size()), cn(c0.size()), raw(c0.size());
  RecurrentF32 l;
  l.steps = c.steps, l.batch = c.batch, l.hidden = c.hidden, l.size = c.size, l.cell = c.cell, l.directions = c.directions;
  const int64_t width = gates * c.hidden, out_width = c.directions * c.size;
  for (int64_t d = 0; d < c.directions; d++) {
    l.direction[d].gates = given.data + d * c.steps * c.batch * width;
    l.direction[d].gates_step = c.batch_first ? width : c.batch * width;
    l.direction[d].gates_batch = c.batch_first ? c.steps * width : width;
    l.direction[d].w = w.data + d * gates * panels(c.hidden) * c.size * 32;
    l.direction[d].bias = c.bias ? bias.data + d * width : nullptr;
    l.direction[d].w_proj = projected ? w_proj.data + d * panels(c.size) * c.hidden * 32 : nullptr;
  }
  l.h0 = h0.data, l.out = out.data, l.hn = hn.data, l.raw = projected ? raw.data : nullptr;
  l.out_step = c.batch_first ? out_width : c.batch * out_width, l.out_batch = c.batch_first ? c.steps * out_width : out_width;
  if (c.cell == kCellLstm) l.c0 = c0.data, l.cn = cn.data;
  std::vector<double> want, want_h, want_c;
  naive::recurrent(l, want, want_h, want_c);
  std::vector<float> first;
  for (int32_t workers : {1, 2, 3}) {
    TestHost host(workers, 0);
    for (int64_t i = 0; i < out.size(); i++) out[i] = NAN;
    recurrent_f32(&host.frame, l);
    if (workers == 1)
      first.assign(out.data, out.data + out.size());
    else
      expect_true(memcmp(first.data(), out.data, first.size() * sizeof(float)) == 0, "the same for any number of workers");
  }
  const double tolerance = 2e-5;
  for (int64_t s = 0; s < c.steps; s++)
    for (int64_t b = 0; b < c.batch; b++)
      for (int64_t j = 0; j < out_width; j++)
        expect_close(out[s * l.out_step + b * l.out_batch + j], want[static_cast<size_t>((s * c.batch + b) * out_width + j)], tolerance, "out", s * c.batch + b, j);
  for (int64_t i = 0; i < hn.size(); i++) expect_close(hn[i], want_h[static_cast<size_t>(i)], tolerance, "hn", i, 0);
  if (c.cell == kCellLstm)
    for (int64_t i = 0; i < cn.size(); i++) expect_close(cn[i], want_c[static_cast<size_t>(i)], tolerance, "cn", i, 0);
}

void nan_stays_in_its_row() {
  Random random(7);
  const int64_t batch = 3, hidden = 40;
  Guarded<float> gates(2 * batch * 4 * hidden), w(4 * panels(hidden) * hidden * 32), h0(batch * hidden), c0(batch * hidden);
  Guarded<float> out(2 * batch * hidden), hn(batch * hidden), cn(batch * hidden);
  random.fill(gates, 1), random.fill(w, 0.1f), random.fill(h0, 1), random.fill(c0, 1);
  h0[hidden + 5] = NAN;
  RecurrentF32 l;
  l.steps = 2, l.batch = batch, l.hidden = l.size = hidden;
  l.direction[0].gates = gates.data, l.direction[0].gates_step = batch * 4 * hidden, l.direction[0].gates_batch = 4 * hidden, l.direction[0].w = w.data;
  l.h0 = h0.data, l.c0 = c0.data, l.out = out.data, l.out_step = batch * hidden, l.out_batch = hidden, l.hn = hn.data, l.cn = cn.data;
  TestHost host(1, 0);
  recurrent_f32(&host.frame, l);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t j = 0; j < hidden; j++) expect_true((isnan(hn[b * hidden + j]) != 0) == (b == 1), "NaN in its own row only");
}

}  // namespace

int main() {
  Random random(1);
  for (int32_t cell : {kCellLstm, kCellGru, kCellTanh, kCellRelu})
    for (int32_t directions : {1, 2})
      for (int64_t hidden : {1, 7, 32, 33, 100})
        for (int64_t batch : {1, 2, 5, 13, 33, 70})
          run_case({cell, directions, 5, batch, hidden, hidden, batch % 2 == 1, hidden % 2 == 1}, random);
  for (int64_t size : {3, 40}) run_case({kCellLstm, 2, 4, 3, 70, size, true, false}, random);
  run_case({kCellGru, 1, 1, 1, 8, 8, true, false}, random);
  nan_stays_in_its_row();
  return finish_tests("recurrent");
}
