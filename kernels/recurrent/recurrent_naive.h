// The definition of the recurrent layers, in plain loops and double: what tests compare the kernels with.
#ifndef SEALIFT_KERNELS_RECURRENT_RECURRENT_NAIVE_H
#define SEALIFT_KERNELS_RECURRENT_RECURRENT_NAIVE_H

#include <math.h>

#include <vector>

#include "recurrent.h"

namespace SEALIFT_NS {
namespace naive {

// Column `row` of the group's product with h: w in SEALIFT_CONV_PANEL32, one group a gate.
static inline double panel_dot(const float *w, int64_t hidden, int64_t size, int64_t gate, int64_t unit, const double *h) {
  const int64_t panel = gate * ((hidden + 31) / 32) + unit / 32;
  double sum = 0;
  for (int64_t p = 0; p < size; p++) sum += h[p] * w[(panel * size + p) * 32 + unit % 32];
  return sum;
}

static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// out, hn and cn of a layer as its struct has them, in double: out [steps, batch, directions * size] and row-major.
static inline void recurrent(const RecurrentF32 &l, std::vector<double> &out, std::vector<double> &hn, std::vector<double> &cn) {
  out.assign(static_cast<size_t>(l.steps * l.batch * l.directions * l.size), 0);
  hn.assign(static_cast<size_t>(l.directions * l.batch * l.size), 0);
  cn.assign(static_cast<size_t>(l.directions * l.batch * l.hidden), 0);
  for (int64_t d = 0; d < l.directions; d++) {
    const RecurrentDirection &from = l.direction[d];
    for (int64_t b = 0; b < l.batch; b++) {
      std::vector<double> h(static_cast<size_t>(l.size)), c(static_cast<size_t>(l.hidden)), raw(static_cast<size_t>(l.hidden));
      for (int64_t j = 0; j < l.size; j++) h[j] = l.h0[(d * l.batch + b) * l.size + j];
      for (int64_t j = 0; l.c0 && j < l.hidden; j++) c[j] = l.c0[(d * l.batch + b) * l.hidden + j];
      for (int64_t s = 0; s < l.steps; s++) {
        const int64_t at = d == 0 ? s : l.steps - 1 - s;
        const float *gates = from.gates + at * from.gates_step + b * from.gates_batch;
        for (int64_t j = 0; j < l.hidden; j++) {
          const auto own = [&](int64_t g) { return panel_dot(from.w, l.hidden, l.size, g, j, h.data()) + (from.bias ? from.bias[g * l.hidden + j] : 0); };
          const auto given = [&](int64_t g) { return static_cast<double>(gates[g * l.hidden + j]); };
          if (l.cell == kCellLstm) {
            c[j] = sigmoid(given(1) + own(1)) * c[j] + sigmoid(given(0) + own(0)) * tanh(given(2) + own(2));
            raw[j] = sigmoid(given(3) + own(3)) * tanh(c[j]);
          } else if (l.cell == kCellGru) {
            const double reset = sigmoid(given(0) + own(0)), keep = sigmoid(given(1) + own(1)), fresh = tanh(given(2) + reset * own(2));
            raw[j] = (h[j] - fresh) * keep + fresh;
          } else {
            const double x = given(0) + own(0);
            raw[j] = l.cell == kCellTanh ? tanh(x) : x < 0 ? 0
                                                           : x;
          }
        }
        for (int64_t j = 0; j < l.size; j++) {
          h[j] = from.w_proj ? 0 : raw[j];
          for (int64_t p = 0; from.w_proj && p < l.hidden; p++) h[j] += raw[p] * from.w_proj[(j / 32 * l.hidden + p) * 32 + j % 32];
          out[(at * l.batch + b) * l.directions * l.size + d * l.size + j] = h[j];
        }
      }
      for (int64_t j = 0; j < l.size; j++) hn[(d * l.batch + b) * l.size + j] = h[j];
      for (int64_t j = 0; j < l.hidden; j++) cn[(d * l.batch + b) * l.hidden + j] = c[j];
    }
  }
}

}  // namespace naive
}  // namespace SEALIFT_NS
#endif
