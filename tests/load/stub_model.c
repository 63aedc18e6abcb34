/* A model library by hand: y = x * scale + bias, and a second output that is None.
 * AOTInductor's required symbols are there as far as its loader calls them at load. */
#include "sealift_model.h"

#define EXPORT __attribute__((visibility("default")))

/* sizes: 0 batch; 1: the constant 4; 2: arena bytes; 3: scratch bytes */
static const sealift_size_slot shape_x[] = {0, 1};
static const char *const text_x[] = {"batch", "4"};
static const int64_t shape_row[] = {4};
static const sealift_tensor_spec inputs[] = {{"x", SEALIFT_FLOAT32, 2, shape_x, text_x, 0, 0, -1}};
static const sealift_tensor_spec outputs[] = {{"y", SEALIFT_FLOAT32, 2, shape_x, text_x, 0, 0, -1},
                                              {"nothing", SEALIFT_FLOAT32, 0, shape_x, text_x, 0, 1, -1}};
static const sealift_symbol_spec symbols[] = {{"batch", 1, 1024, 0, 0}};
static const sealift_constant_spec constants[] = {{"scale", "affine.scale", SEALIFT_FLOAT32, 1, shape_row, 0},
                                                  {"bias", "affine.bias", SEALIFT_FLOAT32, 1, shape_row, 0}};
static const sealift_weight_spec weights[] = {{0, SEALIFT_ROW_MAJOR, 0, 16}, {1, SEALIFT_ROW_MAJOR, 64, 16}};
static const sealift_kernel_spec kernels[] = {{0, "k0_affine", "aten.mul, aten.add", "model.py:3 affine"}};

static void compute_sizes(int64_t *sizes) {
  sizes[1] = 4;
  sizes[2] = 64;
  sizes[3] = 0;
}

static int32_t run(sealift_frame *frame) {
  const float *x = (const float *)frame->inputs[0], *scale = (const float *)frame->weights[0], *bias = (const float *)frame->weights[1];
  float *y = (float *)frame->outputs[0];
  for (int64_t i = 0; i < frame->sizes[0]; i++)
    for (int64_t j = 0; j < 4; j++) y[4 * i + j] = x[4 * i + j] * scale[j] + bias[j];
  return 0;
}

static const sealift_model_api api = {
    .abi_version = SEALIFT_MODEL_ABI_VERSION, .struct_bytes = sizeof(sealift_model_api), .name = "model", .compiler = "by hand",
    .num_inputs = 1, .num_outputs = 2, .num_symbols = 1, .num_sizes = 4, .num_constants = 2, .num_weights = 2, .num_states = 0, .num_kernels = 1,
    .inputs = inputs, .outputs = outputs, .symbols = symbols, .constants = constants, .weights = weights, .states = 0, .kernels = kernels,
    .in_spec = "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": \"builtins.tuple\", \"context\": \"null\", "
               "\"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}, {\"type\": \"builtins.dict\", \"context\": \"[]\", "
               "\"children_spec\": []}]}]",
    .out_spec = "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": null, \"context\": null, "
                "\"children_spec\": []}, {\"type\": null, \"context\": null, \"children_spec\": []}]}]",
    .weights_bytes = 128, .arena_bytes_slot = 2, .scratch_bytes_slot = 3, .isa_mask = 1u << SEALIFT_ISA_BASELINE,
    .compute_sizes = compute_sizes, .run = {run, 0, 0, 0}};

EXPORT const sealift_model_api *sealift_model_get_api(uint32_t abi_version) { return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : 0; }

/* ---- what torch's loader asks for while it loads ------------------------------------------------------------------------------ */

#define P(name) AOTInductorModelContainer##name
EXPORT int32_t P(CreateWithDevice)(void **out, size_t n, const char *device, const char *dir) { (void)n, (void)device, (void)dir; *out = (void *)&api; return 0; }
EXPORT int32_t P(Delete)(void *c) { (void)c; return 0; }
EXPORT int32_t P(GetNumOutputs)(void *c, size_t *n) { (void)c; *n = 2; return 0; }
EXPORT int32_t P(GetNumConstants)(void *c, size_t *n) { (void)c; *n = 2; return 0; }
EXPORT int32_t P(GetConstantName)(void *c, size_t i, const char **s) { (void)c; *s = constants[i].name; return 0; }
EXPORT int32_t P(GetConstantOriginalFQN)(void *c, size_t i, const char **s) { (void)c; *s = constants[i].fqn; return 0; }
EXPORT int32_t P(GetConstantDtype)(void *c, size_t i, int32_t *d) { (void)c, (void)i; *d = 6; return 0; }
EXPORT int32_t P(UpdateConstantBuffer)(void *c, void *m, int a, int b) { (void)c, (void)m, (void)a, (void)b; return 1; }
EXPORT int32_t P(UpdateInactiveConstantBuffer)(void *c, void *m) { (void)c, (void)m; return 1; }
EXPORT int32_t P(RunConstantFolding)(void *c, int a, void *s, void *p) { (void)c, (void)a, (void)s, (void)p; return 0; }
EXPORT int32_t P(SwapConstantBuffer)(void *c) { (void)c; return 0; }
EXPORT int32_t P(GetCallSpec)(void *c, const char **in, const char **out) { (void)c; *in = api.in_spec; *out = api.out_spec; return 0; }
EXPORT int32_t P(Run)(void *c, void **i, size_t ni, void **o, size_t no, void *s, void *p) { (void)c, (void)i, (void)ni, (void)o, (void)no, (void)s, (void)p; return 1; }
