/* sealift_model.h: the boundary between a compiled model library and whoever runs it.
 *
 * A model library exports one symbol, `sealift_model_get_api`, which returns a versioned table of constants and functions.
 * The host (the sealift runtime, or the small embedded host that PyTorch's loaders meet) gives back one table of services.
 * Nothing else crosses: no C++ type, no exception, no allocation that one side makes and the other frees.
 *
 * C99. Every struct starts with or is reached through `struct_bytes` / `abi_version`, and new fields are appended only.
 */
#ifndef SEALIFT_MODEL_H
#define SEALIFT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SEALIFT_MODEL_ABI_VERSION 1u
#define SEALIFT_MAX_RANK 16 /* dimensions of any tensor, in and out */

/* ---- types ------------------------------------------------------------------------------------------------------------- */

typedef enum sealift_dtype { /* stable numbers: stored in libraries */
  SEALIFT_FLOAT32 = 0,
  SEALIFT_FLOAT64 = 1,
  SEALIFT_INT32 = 2,
  SEALIFT_INT64 = 3,
  SEALIFT_BOOL = 4,
  SEALIFT_BFLOAT16 = 5,
  SEALIFT_FLOAT16 = 6,
  SEALIFT_INT8 = 7,
  SEALIFT_INT16 = 8,
  SEALIFT_UINT8 = 9,
  SEALIFT_COMPLEX64 = 10
} sealift_dtype;

typedef enum sealift_isa { /* ascending: a higher one is preferred where the machine has it */
  SEALIFT_ISA_BASELINE = 0, /* x86-64 (SSE2) */
  SEALIFT_ISA_AVX2 = 1,     /* x86-64-v3: AVX2, FMA, F16C, BMI2 */
  SEALIFT_ISA_AVX512 = 2,   /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */
  SEALIFT_ISA_AMX = 3,      /* AVX-512 plus AMX-TILE, AMX-BF16 */
  SEALIFT_ISA_COUNT = 4
} sealift_isa;

typedef enum sealift_layout { /* how a weight lies in the weights file */
  SEALIFT_ROW_MAJOR = 0,
  SEALIFT_PANEL32 = 1, /* a [n, k] matrix as ceil(n / 32) panels of [k][32], columns past n are zero: B of a GEMM that multiplies by its transpose */
  SEALIFT_PANEL32_T = 2, /* the same panels of a constant whose shape is [k, n] */
  SEALIFT_CONV_PANEL32 = 3, /* [out_c, in_c / groups, *taps] with up to three dimensions of taps (none: a recurrent layer's [out_c, k], a group for
                               each gate): per group, ceil((out_c / groups) / 32) panels of [taps * in_c / groups][32], rows in the order (tap,
                               input channel), columns past out_c / groups zero */
  SEALIFT_CONV_DEPTHWISE = 4, /* [out_c, 1, kh, kw] as [kh * kw][out_c] */
  SEALIFT_CONV_TRANSPOSE_PANEL32 = 5 /* the same panels as 3 of a transposed convolution's constant, whose shape is [in_c, out_c / groups, *taps] and
                                        whose group g holds the input channels from g * in_c / groups on */
} sealift_layout;

/* ---- what the library says about itself ---------------------------------------------------------------------------------- */

/* A size is a slot in the `sizes` array of a run: slots [0, num_symbols) hold the symbols in the order of `symbols`,
 * the rest are filled by compute_sizes(). Constants have slots too, so a shape is always a list of slots. */
typedef int32_t sealift_size_slot;

typedef struct sealift_symbol_spec {
  const char *name;      /* as the user declared it ("batch"), else s0, s1, ... */
  int64_t min, max;      /* inclusive; what a run accepts */
  int32_t input;         /* the input and dimension that define it */
  int32_t dim;
  int64_t scale, shift;  /* that dimension's size is scale * symbol + shift; scale 0 counts as 1 */
} sealift_symbol_spec;

typedef struct sealift_tensor_spec {
  const char *name;                 /* argument or output name */
  int32_t dtype;                    /* sealift_dtype */
  int32_t rank;
  const sealift_size_slot *shape;   /* [rank] */
  const char *const *shape_text;    /* [rank] for messages: "batch", "2*seq", "10" */
  const int32_t *order;             /* [rank] outputs: dimensions from outermost to innermost in memory; NULL: row-major. Strides are dense in this order. */
  int32_t optional;                 /* 1: an output that is None: no tensor is made */
  int32_t alias_input;              /* outputs: >= 0: this output IS that input (returned as it came); -1: computed */
} sealift_tensor_spec;

typedef struct sealift_constant_spec { /* what a user sees and replaces: a parameter, buffer or lifted tensor */
  const char *name;   /* C identifier, unique */
  const char *fqn;    /* "encoder.layer.0.weight" */
  int32_t dtype, rank;
  const int64_t *shape;
  int32_t kind;       /* 0 parameter, 1 buffer, 2 lifted tensor constant */
} sealift_constant_spec;

typedef struct sealift_weight_spec { /* one stored array; a constant used in two layouts has two */
  int32_t constant;             /* index into constants */
  int32_t layout;               /* sealift_layout */
  uint64_t offset_bytes;        /* in the weights file, multiple of 64 */
  uint64_t size_bytes;          /* as stored, padding included */
  int32_t groups;               /* of a convolution's layouts; else 0 */
} sealift_weight_spec;

typedef struct sealift_state_spec { /* a buffer that the model mutates; lives in the context */
  const char *name, *fqn;
  int32_t dtype, rank;
  const int64_t *shape;
  int32_t initial_weight;       /* index into weights of its first value */
} sealift_state_spec;

typedef struct sealift_kernel_spec {
  int32_t id;                   /* its index */
  const char *name;             /* "k7_mm_gelu" */
  const char *ops;              /* "aten.addmm, aten.gelu" */
  const char *origin;           /* "model.py:31 blocks.0.proj; model.py:32 blocks.0.act" */
} sealift_kernel_spec;

/* ---- what the host offers ------------------------------------------------------------------------------------------------ */

typedef void (*sealift_task_fn)(void *arg, int64_t begin, int64_t end, int32_t worker);

struct sealift_frame;

typedef struct sealift_host {
  uint32_t abi_version, struct_bytes;
  /* Calls fn over [0, count) split into contiguous ranges, at most one at a time per worker, and returns when all are done.
   * `worker` is in [0, frame->num_workers). Ranges are multiples of `grain` but for the last. */
  void (*parallel_for)(struct sealift_frame *frame, int64_t count, int64_t grain, sealift_task_fn fn, void *arg);
  /* Called when frame->countdown reaches 0 at a kernel's start: rearms the countdown. The interval of a parallel kernel is from its start
   * to its last thread's end. Returns a token given to record_end; 0 means "not recorded". */
  uint64_t (*record_begin)(struct sealift_frame *frame, int32_t kernel_id);
  void (*record_end)(struct sealift_frame *frame, int32_t kernel_id, uint64_t token);
} sealift_host;

/* ---- one run ------------------------------------------------------------------------------------------------------------- */

typedef struct sealift_frame {
  const sealift_host *host;
  void *host_context;               /* the host's own */
  int64_t *sizes;                   /* [num_sizes] */
  const void *const *inputs;        /* row-major, in input order; written where the table's changes_input says so */
  void *const *outputs;             /* dense in the spec's order; NULL where the spec says alias or None */
  const void *const *weights;       /* in weight order */
  void *const *states;              /* row-major */
  char *arena;                      /* sizes[arena_bytes_slot] bytes, 64-byte aligned */
  char *scratch;                    /* num_workers * scratch_stride_bytes, 64-byte aligned; each worker its own part */
  int64_t scratch_stride_bytes;
  int32_t num_workers;              /* 1: everything on the caller's thread */
  int32_t error_kernel;             /* kernel that raised `error`, -1 none */
  int64_t countdown;                /* kernels until the next recorded one; INT64_MAX when nothing listens */
  int32_t error;                    /* set by kernels, atomically: one of sealift_run_error */
  int32_t reserved;
  int64_t error_value, error_bound; /* e.g. the index and the size it exceeded */
} sealift_frame;

typedef enum sealift_run_error {
  SEALIFT_RUN_OK = 0,
  SEALIFT_RUN_INDEX = 1,      /* an index out of range: error_value, error_bound */
  SEALIFT_RUN_ASSERT = 2,     /* an assertion of the user's failed */
  SEALIFT_RUN_DIVIDE = 3      /* an integer division by zero */
} sealift_run_error;

/* ---- the library's table -------------------------------------------------------------------------------------------------- */

typedef struct sealift_model_api {
  uint32_t abi_version, struct_bytes;
  const char *name;
  const char *compiler;             /* "sealift 0.1.0, g++ 12.2.0" */
  int32_t num_inputs, num_outputs, num_symbols, num_sizes, num_constants, num_weights, num_states, num_kernels;
  const sealift_tensor_spec *inputs, *outputs;
  const sealift_symbol_spec *symbols;
  const sealift_constant_spec *constants;
  const sealift_weight_spec *weights;
  const sealift_state_spec *states;
  const sealift_kernel_spec *kernels;
  const char *in_spec, *out_spec;   /* pytree, torch.utils._pytree.treespec_dumps */
  uint64_t weights_bytes;           /* of the weights file */
  sealift_size_slot arena_bytes_slot, scratch_bytes_slot; /* scratch: bytes per worker */
  uint32_t isa_mask;                /* bit i: built for sealift_isa i */
  /* Fills sizes[num_symbols..num_sizes) from the symbols. Pure integer arithmetic. */
  void (*compute_sizes)(int64_t *sizes);
  /* run[isa]: the whole model; NULL where not built. Returns 0, or -1 with frame->error set. */
  int32_t (*run[SEALIFT_ISA_COUNT])(sealift_frame *frame);
  /* [num_inputs], 1: the run writes into this input, which then is the caller's own memory or copied back to it. NULL: into none.
   * Absent from tables of struct_bytes that end before it. */
  const uint8_t *changes_input;
} sealift_model_api;

/* The only symbol a host needs. NULL if the library cannot serve `abi_version`. */
typedef const sealift_model_api *(*sealift_model_get_api_fn)(uint32_t abi_version);
const sealift_model_api *sealift_model_get_api(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif
