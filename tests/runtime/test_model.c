/* Model libraries by hand, one for each -DMODEL_*: what the compiler emits, in miniature.
 *
 *   MODEL_LINEAR  y [batch, 3] = x [batch, 4] @ w [3, 4]^T + b [3], batch 1..1024; w lies in panels; rows in parallel
 *   MODEL_STATE   y [4] = x [4] + total; total += x: a running sum that belongs to the context
 *   MODEL_CHANGES y [] = sum of x [2, 4] before x += 1: an input that the model changes; z [4] is another input, added to y
 *   MODEL_ERRORS  y [n] = table[i] for i [n], n 0..64; a negative index is an assertion's or, below -99, a division's failure
 *   MODEL_SHAPES  a [s, 4], b [2*s], c [s] -> (a itself, None, a transposed in memory order, sum of b as 0-d int64), s 0..8
 */
#include <string.h>

#include "sealift_model.h"

#define COUNT(array) (int32_t)(sizeof(array) / sizeof((array)[0]))
#define EXPORT __attribute__((visibility("default")))

#ifndef MODEL_ISAS
#define MODEL_ISAS (1u << SEALIFT_ISA_BASELINE)
#endif
#ifndef MODEL_NAME
#define MODEL_NAME "model"
#endif
#ifndef MODEL_ABI
#define MODEL_ABI SEALIFT_MODEL_ABI_VERSION
#endif

#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define IN_SPEC(leaves)                                                                                                                  \
  "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": \"builtins.tuple\", \"context\": \"null\", " \
  "\"children_spec\": [" leaves "]}, {\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}]}]"
#define OUT_TUPLE(leaves) "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [" leaves "]}]"

static uint64_t begin_kernel(sealift_frame *frame, int32_t id) {
  return --frame->countdown == 0 ? frame->host->record_begin(frame, id) : 0;
}

static void end_kernel(sealift_frame *frame, int32_t id, uint64_t token) {
  if (token != 0) frame->host->record_end(frame, id, token);
}

/* Only the first error is kept: several threads may find one. */
__attribute__((unused)) static int32_t raise_error(sealift_frame *frame, int32_t error, int32_t kernel, int64_t value, int64_t bound) {
  int32_t none = 0;
  if (__atomic_compare_exchange_n(&frame->error, &none, error, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    frame->error_kernel = kernel;
    frame->error_value = value;
    frame->error_bound = bound;
  }
  return -1;
}

#if defined(MODEL_LINEAR)
enum { BATCH,
       FOUR,
       THREE,
       ARENA,
       SCRATCH,
       NUM_SIZES };
static const int32_t x_shape[] = {BATCH, FOUR}, y_shape[] = {BATCH, THREE};
static const char *const x_text[] = {"batch", "4"}, *const y_text[] = {"batch", "3"};
static const sealift_tensor_spec inputs[] = {{"x", SEALIFT_FLOAT32, 2, x_shape, x_text, NULL, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"y", SEALIFT_FLOAT32, 2, y_shape, y_text, NULL, 0, -1}};
static const sealift_symbol_spec symbols[] = {{"batch", 1, 1024, 0, 0, 1, 0}};
static const int64_t w_shape[] = {3, 4}, b_shape[] = {3};
static const sealift_constant_spec constants[] = {{"w", "lin.weight", SEALIFT_FLOAT32, 2, w_shape, 0}, {"b", "lin.bias", SEALIFT_FLOAT32, 1, b_shape, 0}};
static const sealift_weight_spec weights[] = {{0, SEALIFT_PANEL32, 0, 512, 0}, {1, SEALIFT_ROW_MAJOR, 512, 64, 0}};
#define WEIGHTS_BYTES 576
static const sealift_kernel_spec kernels[] = {{0, "k0_matmul", "aten.mm", "model.py:3 lin"}, {1, "k1_bias", "aten.add", "model.py:3 lin"}};
#define IN_LEAVES LEAF
#define OUT_TREE "[1, " LEAF "]"

static void compute_sizes(int64_t *sizes) {
  sizes[FOUR] = 4;
  sizes[THREE] = 3;
  sizes[ARENA] = sizes[BATCH] * 3 * 4;
  sizes[SCRATCH] = 64;
}

static void matmul_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const sealift_frame *frame = arg;
  const float *x = frame->inputs[0], *w = frame->weights[0];
  float *product = (float *)frame->arena, *scratch = (float *)(frame->scratch + worker * frame->scratch_stride_bytes);
  for (int64_t row = begin; row < end; ++row) {
    for (int n = 0; n < 3; ++n) {
      scratch[n] = 0;
      for (int k = 0; k < 4; ++k) scratch[n] += x[row * 4 + k] * w[k * 32 + n];
    }
    memcpy(product + row * 3, scratch, 3 * sizeof(float));
  }
}

static int32_t run(sealift_frame *frame) {
  const int64_t batch = frame->sizes[BATCH];
  uint64_t token = begin_kernel(frame, 0);
#ifdef MODEL_SERIAL
  matmul_rows(frame, 0, batch, 0);
#else
  frame->host->parallel_for(frame, batch, 4, matmul_rows, frame);
#endif
  end_kernel(frame, 0, token);
  token = begin_kernel(frame, 1);
  const float *product = (const float *)frame->arena, *b = frame->weights[1];
  float *y = frame->outputs[0];
  for (int64_t row = 0; row < batch; ++row) {
    for (int n = 0; n < 3; ++n) y[row * 3 + n] = product[row * 3 + n] + b[n];
  }
  end_kernel(frame, 1, token);
  return 0;
}
#define NUM_STATES 0
#define STATES NULL

#elif defined(MODEL_STATE)
enum { FOUR,
       ARENA,
       SCRATCH,
       NUM_SIZES };
static const int32_t shape[] = {FOUR};
static const char *const text[] = {"4"};
static const sealift_tensor_spec inputs[] = {{"x", SEALIFT_FLOAT32, 1, shape, text, NULL, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"y", SEALIFT_FLOAT32, 1, shape, text, NULL, 0, -1}};
static const sealift_symbol_spec symbols[1];
#define NUM_SYMBOLS 0
static const int64_t total_shape[] = {4};
static const sealift_constant_spec constants[] = {{"total", "total", SEALIFT_FLOAT32, 1, total_shape, 1}};
static const sealift_weight_spec weights[] = {{0, SEALIFT_ROW_MAJOR, 0, 64, 0}};
#define WEIGHTS_BYTES 64
static const sealift_state_spec states[] = {{"total", "total", SEALIFT_FLOAT32, 1, total_shape, 0}};
#define NUM_STATES 1
#define STATES states
static const sealift_kernel_spec kernels[] = {{0, "k0_add", "aten.add, aten.add_", "model.py:7"}};
#define IN_LEAVES LEAF
#define OUT_TREE "[1, " LEAF "]"

static void compute_sizes(int64_t *sizes) {
  sizes[FOUR] = 4;
  sizes[ARENA] = sizes[SCRATCH] = 0;
}

static int32_t run(sealift_frame *frame) {
  const uint64_t token = begin_kernel(frame, 0);
  const float *x = frame->inputs[0];
  float *y = frame->outputs[0], *total = frame->states[0];
  for (int i = 0; i < 4; ++i) {
    y[i] = x[i] + total[i];
    total[i] += x[i];
  }
  end_kernel(frame, 0, token);
  return 0;
}

#elif defined(MODEL_CHANGES)
enum { TWO,
       FOUR,
       ARENA,
       SCRATCH,
       NUM_SIZES };
static const int32_t x_shape[] = {TWO, FOUR}, z_shape[] = {FOUR};
static const char *const x_text[] = {"2", "4"}, *const z_text[] = {"4"};
static const sealift_tensor_spec inputs[] = {{"x", SEALIFT_FLOAT32, 2, x_shape, x_text, NULL, 0, -1}, {"z", SEALIFT_FLOAT32, 1, z_shape, z_text, NULL, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"y", SEALIFT_FLOAT32, 1, z_shape, z_text, NULL, 0, -1}};
static const sealift_symbol_spec symbols[1];
#define NUM_SYMBOLS 0
static const sealift_constant_spec constants[1];
static const sealift_weight_spec weights[1];
#define NUM_CONSTANTS 0
#define WEIGHTS_BYTES 0
#define NUM_STATES 0
#define STATES NULL
static const uint8_t changes_input[] = {1, 0};
#define CHANGES_INPUT changes_input
static const sealift_kernel_spec kernels[] = {{0, "k0_add", "aten.add_", "model.py:9"}};
#define IN_LEAVES LEAF ", " LEAF
#define OUT_TREE "[1, " LEAF "]"

static void compute_sizes(int64_t *sizes) {
  sizes[TWO] = 2;
  sizes[FOUR] = 4;
  sizes[ARENA] = sizes[SCRATCH] = 0;
}

static int32_t run(sealift_frame *frame) {
  const uint64_t token = begin_kernel(frame, 0);
  float *x = (float *)frame->inputs[0], *y = frame->outputs[0];
  const float *z = frame->inputs[1];
  for (int j = 0; j < 4; ++j) {
    y[j] = z[j] + x[j] + x[4 + j];
    x[j] += 1;
    x[4 + j] += 1;
  }
  end_kernel(frame, 0, token);
  return 0;
}

#elif defined(MODEL_ERRORS)
enum { N,
       ARENA,
       SCRATCH,
       NUM_SIZES };
static const int32_t shape[] = {N};
static const char *const text[] = {"n"};
static const sealift_tensor_spec inputs[] = {{"i", SEALIFT_INT64, 1, shape, text, NULL, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"y", SEALIFT_FLOAT32, 1, shape, text, NULL, 0, -1}};
static const sealift_symbol_spec symbols[] = {{"n", 0, 64, 0, 0, 1, 0}};
static const int64_t table_shape[] = {5};
static const sealift_constant_spec constants[] = {{"table", "table", SEALIFT_FLOAT32, 1, table_shape, 2}};
static const sealift_weight_spec weights[] = {{0, SEALIFT_ROW_MAJOR, 0, 64, 0}};
#define WEIGHTS_BYTES 64
#define NUM_STATES 0
#define STATES NULL
static const sealift_kernel_spec kernels[] = {{0, "k0_index", "aten.index", "model.py:12 table"}};
#define IN_LEAVES LEAF
#define OUT_TREE "[1, " LEAF "]"

static void compute_sizes(int64_t *sizes) { sizes[ARENA] = sizes[SCRATCH] = 0; }

static int32_t run(sealift_frame *frame) {
  const uint64_t token = begin_kernel(frame, 0);
  const int64_t *index = frame->inputs[0];
  const float *table = frame->weights[0];
  float *y = frame->outputs[0];
  int32_t result = 0;
  for (int64_t i = 0; i < frame->sizes[N] && result == 0; ++i) {
    if (index[i] < -99) {
      result = raise_error(frame, SEALIFT_RUN_DIVIDE, 0, 0, 0);
    } else if (index[i] < 0) {
      result = raise_error(frame, SEALIFT_RUN_ASSERT, 0, index[i], 0);
    } else if (index[i] >= 5) {
      result = raise_error(frame, SEALIFT_RUN_INDEX, 0, index[i], 5);
    } else {
      y[i] = table[index[i]];
    }
  }
  end_kernel(frame, 0, token);
  return result;
}

#elif defined(MODEL_SHAPES)
enum { S,
       FOUR,
       TWICE,
       ARENA,
       SCRATCH,
       NUM_SIZES };
static const int32_t a_shape[] = {S, FOUR}, b_shape[] = {TWICE}, c_shape[] = {S}, transposed[] = {1, 0};
static const char *const a_text[] = {"s", "4"}, *const b_text[] = {"2*s"}, *const c_text[] = {"s"};
static const sealift_tensor_spec inputs[] = {{"a", SEALIFT_FLOAT32, 2, a_shape, a_text, NULL, 0, -1},
                                             {"b", SEALIFT_INT64, 1, b_shape, b_text, NULL, 0, -1},
                                             {"c", SEALIFT_BOOL, 1, c_shape, c_text, NULL, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"same", SEALIFT_FLOAT32, 2, a_shape, a_text, NULL, 0, 0},
                                              {"nothing", SEALIFT_FLOAT32, 0, NULL, NULL, NULL, 1, -1},
                                              {"turned", SEALIFT_FLOAT32, 2, a_shape, a_text, transposed, 0, -1},
                                              {"sum", SEALIFT_INT64, 0, NULL, NULL, NULL, 0, -1}};
static const sealift_symbol_spec symbols[] = {{"s", 0, 8, 0, 0, 1, 0}};
static const sealift_constant_spec constants[1];
static const sealift_weight_spec weights[1];
#define NUM_CONSTANTS 0
#define WEIGHTS_BYTES 0
#define NUM_STATES 0
#define STATES NULL
static const sealift_kernel_spec kernels[] = {{0, "k0_turn", "aten.mul", "model.py:20"}, {1, "k1_sum", "aten.sum", "model.py:21"}};
#define IN_LEAVES LEAF ", " LEAF ", " LEAF
#define OUT_TREE OUT_TUPLE(LEAF ", " LEAF ", " LEAF ", " LEAF)

static void compute_sizes(int64_t *sizes) {
  sizes[FOUR] = 4;
  sizes[TWICE] = 2 * sizes[S];
  sizes[ARENA] = sizes[SCRATCH] = 0;
}

static int32_t run(sealift_frame *frame) {
  const int64_t s = frame->sizes[S];
  uint64_t token = begin_kernel(frame, 0);
  const float *a = frame->inputs[0];
  const uint8_t *c = frame->inputs[2];
  float *turned = frame->outputs[2];
  for (int64_t i = 0; i < s; ++i) {
    for (int64_t j = 0; j < 4; ++j) turned[j * s + i] = c[i] ? 2 * a[i * 4 + j] : 0;
  }
  end_kernel(frame, 0, token);
  token = begin_kernel(frame, 1);
  const int64_t *b = frame->inputs[1];
  int64_t sum = 0;
  for (int64_t i = 0; i < 2 * s; ++i) sum += b[i];
  memcpy(frame->outputs[3], &sum, sizeof sum);
  end_kernel(frame, 1, token);
  return 0;
}
#endif

#ifndef CHANGES_INPUT
#define CHANGES_INPUT NULL
#endif
#ifndef NUM_CONSTANTS
#define NUM_CONSTANTS COUNT(constants)
#endif
#ifndef NUM_SYMBOLS
#define NUM_SYMBOLS COUNT(symbols)
#endif

static const sealift_model_api api = {
    .abi_version = MODEL_ABI,
    .struct_bytes = sizeof(sealift_model_api),
    .name = MODEL_NAME,
    .compiler = "by hand",
    .num_inputs = COUNT(inputs),
    .num_outputs = COUNT(outputs),
    .num_symbols = NUM_SYMBOLS,
    .num_sizes = NUM_SIZES,
    .num_constants = NUM_CONSTANTS,
    .num_weights = NUM_CONSTANTS,
    .num_states = NUM_STATES,
    .num_kernels = COUNT(kernels),
    .inputs = inputs,
    .outputs = outputs,
    .symbols = symbols,
    .constants = constants,
    .weights = weights,
    .states = STATES,
    .kernels = kernels,
    .in_spec = IN_SPEC(IN_LEAVES),
    .out_spec = OUT_TREE,
    .weights_bytes = WEIGHTS_BYTES,
    .arena_bytes_slot = ARENA,
    .scratch_bytes_slot = SCRATCH,
    .isa_mask = MODEL_ISAS,
    .compute_sizes = compute_sizes,
    .run = {run, run, run, run},
    .changes_input = CHANGES_INPUT,
};

EXPORT const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : NULL;
}
