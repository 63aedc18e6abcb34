// f32 recurrent layers (LSTM, GRU, plain): the loop over steps, given the inputs' share of the gates, which is one matrix product before it.
//
//   lstm  i, f, o = sigmoid(gates + h W^T + bias), g = tanh(...);  c = f c + i g;  h = o tanh(c)             gates in the order i, f, g, o
//   gru   r, z = sigmoid(gates + h W^T + bias), n = tanh(gates_n + r (h W_n^T + bias_n));  h = n + z (h - n)  in the order r, z, n
//   tanh, relu   h = f(gates + h W^T + bias)
//   with a projection: h is then multiplied by w_proj^T
//
// Both directions of a bidirectional layer step together, where there are workers for both. A step is one fork: a task owns a block of units, whose
// columns of W stay in its core's cache.
// Results are bitwise the same for any number of workers: the order of an element's products depends on batch, hidden and the ISA only.
#ifndef SEALIFT_KERNELS_RECURRENT_RECURRENT_H
#define SEALIFT_KERNELS_RECURRENT_RECURRENT_H

#include <stdint.h>

#include "../simd/isa.h"

struct sealift_frame;

namespace SEALIFT_NS {

enum RecurrentCell : int32_t { kCellLstm = 0,
                               kCellGru = 1,
                               kCellTanh = 2,
                               kCellRelu = 3 };

// What one direction reads. Strides in elements.
struct RecurrentDirection {
  const float *gates = nullptr;  // [steps, batch, num_gates * hidden], each row contiguous
  int64_t gates_step = 0, gates_batch = 0;
  const float *w = nullptr;       // SEALIFT_CONV_PANEL32 of [num_gates * hidden, size], one group a gate
  const float *bias = nullptr;    // [num_gates * hidden]; may be null
  const float *w_proj = nullptr;  // SEALIFT_PANEL32 of [size, hidden]; null without a projection
};

struct RecurrentF32 {
  RecurrentDirection direction[2];  // the second walks from the last step to the first
  const float *h0 = nullptr;        // [directions, batch, size]
  const float *c0 = nullptr;        // [directions, batch, hidden], lstm
  float *out = nullptr;             // [steps, batch, directions * size]
  int64_t out_step = 0, out_batch = 0;
  float *hn = nullptr;                                 // [directions, batch, size]
  float *cn = nullptr;                                 // [directions, batch, hidden], lstm; the running c
  float *raw = nullptr;                                // [directions, batch, hidden]: h before the projection; unused without one
  int64_t steps = 0, batch = 0, hidden = 0, size = 0;  // size of h: hidden, or the projection's
  int32_t cell = kCellLstm, directions = 1;
};

void recurrent_f32(sealift_frame *frame, const RecurrentF32 &layer);

}  // namespace SEALIFT_NS
#endif
