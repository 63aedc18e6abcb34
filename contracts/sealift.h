/* sealift.h: run sealed model packages from C. What this file does not declare is not API.
 *
 * Threads: a model is immutable and may be shared by any number of threads; a context belongs to one run at a time.
 * Ownership: what a *_open, *_create or *_load gives, the matching *_close or *_destroy takes back; const char * results live as long as
 * their handle. Tensors cross as DLPack structs (dlpack.h, DLPack 1.x), on the CPU only.
 * Errors: every function that can fail returns a sealift_status and, if `err` is given, writes one NUL-terminated line into it
 * ("[E-INPUT-003] input 'x': ... help: ..."). No exception crosses this header. C99.
 */
#ifndef SEALIFT_H
#define SEALIFT_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"

#if defined(_WIN32)
#define SEALIFT_API __declspec(dllimport)
#else
#define SEALIFT_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SEALIFT_VERSION_MAJOR 0
#define SEALIFT_VERSION_MINOR 1
#define SEALIFT_ABI_VERSION 1u

typedef enum sealift_status { /* stable numbers; the text code of each is sealift_status_code() */
  SEALIFT_OK = 0,
  SEALIFT_ERROR_ARGUMENT = 1,    /* E-ARG-001      a NULL or contradictory argument */
  SEALIFT_ERROR_FILE = 2,        /* E-FILE-001     the file cannot be opened, read or mapped */
  SEALIFT_ERROR_PACKAGE = 3,     /* E-PACKAGE-001  not a sealift package, or a damaged or hostile archive */
  SEALIFT_ERROR_INTEGRITY = 4,   /* E-PACKAGE-002  a member differs from the digest that seals it */
  SEALIFT_ERROR_VERSION = 5,     /* E-PACKAGE-003  made for a newer sealift */
  SEALIFT_ERROR_MODEL_NAME = 6,  /* E-PACKAGE-004  no model of that name; the message lists the names */
  SEALIFT_ERROR_ISA = 7,         /* E-ISA-001      built for no instruction set that this machine has */
  SEALIFT_ERROR_LIBRARY = 8,     /* E-LIBRARY-001  the model library cannot be loaded */
  SEALIFT_ERROR_INPUT_COUNT = 9, /* E-INPUT-001    wrong number of inputs or outputs */
  SEALIFT_ERROR_DTYPE = 10,      /* E-INPUT-002    wrong dtype */
  SEALIFT_ERROR_SHAPE = 11,      /* E-INPUT-003    wrong rank or size, or a size out of the declared range */
  SEALIFT_ERROR_DEVICE = 12,     /* E-INPUT-004    not on the CPU */
  SEALIFT_ERROR_OUTPUT = 13,     /* E-INPUT-005    a preallocated output, or an input that the model changes, that cannot be written */
  SEALIFT_ERROR_INDEX = 14,      /* E-RUN-001      an index out of range inside the model (eager raises IndexError) */
  SEALIFT_ERROR_ASSERT = 15,     /* E-RUN-002      an assertion of the model failed */
  SEALIFT_ERROR_DIVIDE = 16,     /* E-RUN-003      integer division by zero */
  SEALIFT_ERROR_MEMORY = 17,     /* E-MEMORY-001   out of memory */
  SEALIFT_ERROR_CONSTANT = 18,   /* E-CONSTANT-001 unknown constant, or one that does not fit */
  SEALIFT_ERROR_BUSY = 19        /* E-CONTEXT-001  the context is running on another thread */
} sealift_status;

SEALIFT_API const char *sealift_status_code(sealift_status status);
SEALIFT_API const char *sealift_version(void);

/* ---- models -------------------------------------------------------------------------------------------------------------- */

typedef struct sealift_model sealift_model;

typedef struct sealift_open_options {
  uint32_t struct_bytes;     /* sizeof(sealift_open_options) */
  const char *model_name;    /* NULL: the only model, else the one called "model" */
  int32_t num_threads;       /* threads a run may use, the caller's included; 0: every core the process may use */
  int32_t isa;               /* a sealift_isa; -1: the best that the machine has */
  int32_t verify;            /* 0: code only (manifest and libraries), 1: weights too */
} sealift_open_options;

/* Fills in the defaults: NULL, 0, -1, 1. */
SEALIFT_API void sealift_open_options_init(sealift_open_options *options);

/* Reads, verifies and loads one model of a package. `options` may be NULL. On failure *out is NULL. Thread-safe. */
SEALIFT_API sealift_status sealift_open(const char *path, const sealift_open_options *options, sealift_model **out, char *err, size_t err_len);
/* Ends the handle. Contexts that are left keep what they need of the model until they are destroyed. NULL is ignored. */
SEALIFT_API void sealift_close(sealift_model *model);

typedef struct sealift_dim {
  const char *text;          /* "batch", "2*seq", "10" */
  int64_t min, max;          /* inclusive; equal for a fixed size */
} sealift_dim;

typedef struct sealift_tensor_info {
  const char *name;
  DLDataType dtype;
  int32_t rank;
  const sealift_dim *dims;   /* [rank] */
  int32_t is_none;           /* outputs: 1 where the model returns None */
} sealift_tensor_info;

SEALIFT_API const char *sealift_model_name(const sealift_model *model);
SEALIFT_API const char *sealift_model_isa(const sealift_model *model);         /* "avx2": the code that runs */
SEALIFT_API int32_t sealift_model_num_threads(const sealift_model *model);
SEALIFT_API int32_t sealift_num_inputs(const sealift_model *model);
SEALIFT_API int32_t sealift_num_outputs(const sealift_model *model);
/* NULL if out of range. The infos of a kind lie in one array: [0] leads to all of them (so do those of the constants and the kernels). */
SEALIFT_API const sealift_tensor_info *sealift_input_info(const sealift_model *model, int32_t index);
/* 1: a run changes this input in place, as the module does in eager: the tensor has to be writable, in memory of its own. */
SEALIFT_API int32_t sealift_input_is_changed(const sealift_model *model, int32_t index);
SEALIFT_API const sealift_tensor_info *sealift_output_info(const sealift_model *model, int32_t index);
/* The exported call's structure, as torch.utils._pytree.treespec_dumps writes it. */
SEALIFT_API const char *sealift_input_spec(const sealift_model *model);
SEALIFT_API const char *sealift_output_spec(const sealift_model *model);
/* The bytes of a member of the package ("sealift/manifest.json"), NUL-terminated, or NULL where there is none or it differs from its digest;
 * they live as long as the model. */
SEALIFT_API const char *sealift_member(const sealift_model *model, const char *name, size_t *size_bytes);

/* ---- packages of several models ------------------------------------------------------------------------------------------ */

typedef struct sealift_package sealift_package;

/* Opens every model of a package (options->model_name is not looked at): the file is read and verified once. */
SEALIFT_API sealift_status sealift_package_open(const char *path, const sealift_open_options *options, sealift_package **out, char *err, size_t err_len);
/* Ends the handle and its models'; contexts and sessions keep what they need. NULL is ignored. */
SEALIFT_API void sealift_package_close(sealift_package *package);
SEALIFT_API int32_t sealift_package_num_models(const sealift_package *package);
/* In the order of their names; NULL if out of range. The package's: not to be closed. */
SEALIFT_API sealift_model *sealift_package_model(const sealift_package *package, int32_t index);
/* NULL if there is none of that name. */
SEALIFT_API sealift_model *sealift_package_find(const sealift_package *package, const char *name);

/* ---- constants ----------------------------------------------------------------------------------------------------------- */

typedef struct sealift_constant_info {
  const char *fqn;           /* "encoder.layer.0.weight" */
  DLDataType dtype;
  int32_t rank;
  const int64_t *shape;
} sealift_constant_info;

SEALIFT_API int32_t sealift_num_constants(const sealift_model *model);
SEALIFT_API const sealift_constant_info *sealift_constant(const sealift_model *model, int32_t index);
/* Packs new values into the inactive set; constants not named keep their active values. Runs go on meanwhile with the active set. */
SEALIFT_API sealift_status sealift_load_constants(sealift_model *model, int32_t count, const char *const *fqns, const DLTensor *values, char *err, size_t err_len);
/* Makes the inactive set active, for runs that start from now on. */
SEALIFT_API sealift_status sealift_swap_constants(sealift_model *model, char *err, size_t err_len);

/* ---- running ------------------------------------------------------------------------------------------------------------- */

typedef struct sealift_context sealift_context;

/* A context holds the arena and the model's state. Make one per concurrent run; reuse it. A run that fails leaves the state as far as it
 * came: reset, or go on from a clone made before. */
SEALIFT_API sealift_status sealift_context_create(sealift_model *model, sealift_context **out, char *err, size_t err_len);
SEALIFT_API void sealift_context_destroy(sealift_context *context);
/* Puts every state buffer back to its first value. */
SEALIFT_API sealift_status sealift_context_reset(sealift_context *context, char *err, size_t err_len);
/* A new context with a copy of the state. */
SEALIFT_API sealift_status sealift_context_clone(const sealift_context *context, sealift_context **out, char *err, size_t err_len);

/* Shapes of the outputs for these inputs, without running: shapes[i] receives output i's sizes (SEALIFT_MAX_RANK each, may be NULL),
 * strides likewise, in elements. */
SEALIFT_API sealift_status sealift_output_shapes(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int64_t (*shapes)[16],
                                                 int64_t (*strides)[16], char *err, size_t err_len);

/* Runs with outputs that the caller allocated: right dtype and shape, any strides that do not overlap. One tensor for each output; one that
 * is None is not looked at. An output may lie over an input: the run then goes through memory of the context's.
 * Inputs of any strides are taken; those that are not row-major are copied first. */
SEALIFT_API sealift_status sealift_run_into(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int32_t num_outputs,
                                            const DLTensor *outputs, char *err, size_t err_len);
/* Runs with outputs that sealift allocates: outputs[i] receives a tensor that the caller frees through its deleter; NULL for None. */
SEALIFT_API sealift_status sealift_run(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int32_t num_outputs,
                                       DLManagedTensorVersioned **outputs, char *err, size_t err_len);

/* ---- sessions: several models over one state ----------------------------------------------------------------------------- */

typedef struct sealift_session sealift_session;

/* A context for each model of the package. State buffers of the same FQN, dtype and shape are one buffer for all of them: what prefill
 * writes into the cache, decode reads. Buffers of one FQN that differ in dtype or shape are an error. One run at a time in a session. */
SEALIFT_API sealift_status sealift_session_create(const sealift_package *package, sealift_session **out, char *err, size_t err_len);
SEALIFT_API void sealift_session_destroy(sealift_session *session);
/* The context of the package's model of that index, for sealift_run and its kin; NULL if out of range. The session's: not to be destroyed.
 * sealift_context_reset resets the whole session; sealift_context_clone refuses: clone the session. */
SEALIFT_API sealift_context *sealift_session_context(sealift_session *session, int32_t index);
SEALIFT_API sealift_status sealift_session_reset(sealift_session *session, char *err, size_t err_len);
/* A new session with a copy of the state. */
SEALIFT_API sealift_status sealift_session_clone(const sealift_session *session, sealift_session **out, char *err, size_t err_len);

/* ---- record points ------------------------------------------------------------------------------------------------------- */

typedef struct sealift_kernel_info {
  int32_t id;
  const char *name;          /* "k7_mm_gelu" */
  const char *ops;           /* the ATen operators it stands for */
  const char *origin;        /* the user's file:line and module path */
} sealift_kernel_info;

SEALIFT_API int32_t sealift_num_kernels(const sealift_model *model);
SEALIFT_API const sealift_kernel_info *sealift_kernel(const sealift_model *model, int32_t id);

typedef struct sealift_record {
  const char *model_name;
  const sealift_kernel_info *kernel;
  uint64_t start_ns;         /* CLOCK_MONOTONIC */
  uint64_t dur_ns;           /* 0 in on_begin */
  uint64_t weight;           /* how many kernels this one stands for: 1 / sampling probability, rounded up or down at random to keep the mean */
  const void *context;       /* the sealift_context */
} sealift_record;

/* on_begin's result is given to on_end. Both run on the thread that runs the model; either may be NULL. They must not add or remove callbacks. */
typedef void *(*sealift_on_begin)(void *user, const sealift_record *record);
typedef void (*sealift_on_end)(void *user, void *begun, const sealift_record *record);
typedef uint64_t sealift_callback; /* 0: none */

/* Process-wide, from the next run of every context on. Each kernel is recorded with the given probability, in (0, 1], independently; 1.0: all.
 * At most 16 at a time (SEALIFT_ERROR_MEMORY beyond). */
SEALIFT_API sealift_status sealift_add_callback(sealift_on_begin on_begin, sealift_on_end on_end, void *user, double sampling_probability,
                                                sealift_callback *out);
/* Returns when no run is inside the callback any more. */
SEALIFT_API sealift_status sealift_remove_callback(sealift_callback callback);

/* ---- the machine --------------------------------------------------------------------------------------------------------- */

/* Bit i: this machine and operating system run sealift_isa i (0 baseline, 1 AVX2, 2 AVX-512, 3 AMX). */
SEALIFT_API uint32_t sealift_machine_isas(void);

#ifdef __cplusplus
}
#endif
#endif
