// sealift.h's functions. No exception passes them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <string>

#include "context_handle.h"
#include "cpu.h"
#include "dtype.h"
#include "failure.h"
#include "sealift_observe.h"

using sealift::runtime::Context;
using sealift::runtime::ErrorText;
using sealift::runtime::fail;

namespace {

template <class Body>
sealift_status guarded(ErrorText err, Body body) noexcept {
  try {
    return body();
  } catch (const sealift::runtime::Failure &failure) {
    return fail(err, failure.status(), "%s", failure.what());
  } catch (const std::bad_alloc &) {
    return fail(err, SEALIFT_ERROR_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return fail(err, SEALIFT_ERROR_ARGUMENT, "unexpected: %s; help: please report this", error.what());
  }
}

// ---- the host's services -------------------------------------------------------------------------------------------------

sealift_context &handle_of(sealift_frame *frame) { return *static_cast<sealift_context *>(frame->host_context); }

uint64_t record_begin(sealift_frame *frame, int32_t kernel) {
  sealift_context &context = handle_of(frame);
  return context.records.begin(context, *frame, kernel);
}

void record_end(sealift_frame *frame, int32_t kernel, uint64_t token) {
  if (token == 0) return;
  sealift_context &context = handle_of(frame);
  context.records.end(context, kernel);
}

constexpr sealift_host HOST = {SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_host), Context::parallel_for, record_begin, record_end};

// ---- runs ----------------------------------------------------------------------------------------------------------------

class Turn {  // the context, for one thread
 public:
  explicit Turn(sealift_context &context) : context_(context), mine_(context.busy.exchange(1, std::memory_order_acquire) == 0) {}
  ~Turn() {
    if (mine_) context_.busy.store(0, std::memory_order_release);
  }
  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;
  bool is_mine() const { return mine_; }

 private:
  sealift_context &context_;
  bool mine_;
};

sealift_status busy(ErrorText err) {
  return fail(err, SEALIFT_ERROR_BUSY, "the context is in use by another thread; help: make one context for each thread that runs");
}

sealift_status null_argument(ErrorText err, const char *name) { return fail(err, SEALIFT_ERROR_ARGUMENT, "%s is NULL; help: pass it", name); }

__attribute__((noinline)) void take_weights(sealift_context &context) {
  context.weights = context.model->weight_sets.active(&context.weights_version);
  context.core.set_weights(context.weights->pointers.data());
}

void begin_run(sealift_context &context) {
  if (__builtin_expect(context.weights_version != context.model->weight_sets.version(), 0)) take_weights(context);
  context.records.begin_run(context.core.frame());
}

// A tensor that the caller frees: one block, the data 64-byte aligned behind the header.
struct OwnedTensor {
  DLManagedTensorVersioned managed;
  int64_t shape[SEALIFT_MAX_RANK], strides[SEALIFT_MAX_RANK];
};
constexpr size_t HEADER_BYTES = (sizeof(OwnedTensor) + 63) / 64 * 64;

void free_tensor(DLManagedTensorVersioned *tensor) { free(tensor); }

OwnedTensor *make_tensor(const Context &core, int32_t output) {
  const sealift_tensor_spec &spec = core.api().outputs[output];
  void *memory = nullptr;
  const size_t bytes = static_cast<size_t>(core.output_bytes(output));
  if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, 64, HEADER_BYTES + bytes) != 0) return nullptr;
  OwnedTensor *tensor = static_cast<OwnedTensor *>(memory);
  core.output_shape(output, tensor->shape);
  for (int32_t d = 0; d < spec.rank; ++d) tensor->strides[d] = core.output_strides(output)[d];
  DLManagedTensorVersioned &managed = tensor->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = nullptr;
  managed.deleter = free_tensor;
  managed.flags = 0;
  managed.dl_tensor = DLTensor{static_cast<char *>(memory) + HEADER_BYTES,
                               DLDevice{kDLCPU, 0},
                               spec.rank,
                               sealift::runtime::dlpack_dtype(spec.dtype),
                               tensor->shape,
                               tensor->strides,
                               0};
  return tensor;
}

sealift_context *new_context(sealift_model &model, ErrorText err, sealift_status *status) {
  std::unique_ptr<sealift_context> context(new sealift_context);
  *status = context->core.init(model.api, model.isa, model.num_threads, HOST, err);
  if (*status != SEALIFT_OK) return nullptr;
  context->model = &model;
  take_weights(*context);
  model.owners.fetch_add(1, std::memory_order_relaxed);
  return context.release();
}

}  // namespace

// ---- models --------------------------------------------------------------------------------------------------------------

const char *sealift_status_code(sealift_status status) { return sealift::runtime::status_code(status); }

const char *sealift_version(void) { return SEALIFT_VERSION_TEXT; }

void sealift_open_options_init(sealift_open_options *options) {
  if (options != nullptr) *options = sealift_open_options{sizeof(sealift_open_options), nullptr, 0, -1, 1};
}

sealift_status sealift_open(const char *path, const sealift_open_options *options, sealift_model **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (path == nullptr) return null_argument(err, "path");
  SEALIFT_LOG_API_USAGE_ONCE("sealift.open");
  sealift_open_options chosen;
  sealift_open_options_init(&chosen);
  if (options != nullptr) {
    // A caller built with an older header has a shorter struct: what it lacks keeps its default.
    if (options->struct_bytes < sizeof options->struct_bytes)
      return fail(err, SEALIFT_ERROR_ARGUMENT, "options.struct_bytes is not set; help: call sealift_open_options_init first");
    memcpy(&chosen, options, std::min<size_t>(options->struct_bytes, sizeof chosen));
  }
  return guarded(err, [&] {
    *out = new sealift_model(path, chosen);
    return SEALIFT_OK;
  });
}

void sealift_close(sealift_model *model) {
  if (model != nullptr) model->release();
}

const char *sealift_model_name(const sealift_model *model) { return model->name.c_str(); }
const char *sealift_model_isa(const sealift_model *model) { return sealift::runtime::isa_name(model->isa); }
int32_t sealift_model_num_threads(const sealift_model *model) { return model->num_threads; }
int32_t sealift_num_inputs(const sealift_model *model) { return model->api.num_inputs; }
int32_t sealift_num_outputs(const sealift_model *model) { return model->api.num_outputs; }

const sealift_tensor_info *sealift_input_info(const sealift_model *model, int32_t index) {
  return index >= 0 && index < model->api.num_inputs ? &model->inputs[static_cast<size_t>(index)] : nullptr;
}

const sealift_tensor_info *sealift_output_info(const sealift_model *model, int32_t index) {
  return index >= 0 && index < model->api.num_outputs ? &model->outputs[static_cast<size_t>(index)] : nullptr;
}

const char *sealift_input_spec(const sealift_model *model) { return model->api.in_spec; }
const char *sealift_output_spec(const sealift_model *model) { return model->api.out_spec; }

const char *sealift_member(const sealift_model *model, const char *name, size_t *size_bytes) {
  const std::string *content = nullptr;
  if (name != nullptr) {
    guarded(ErrorText{nullptr, 0}, [&] {
      content = const_cast<sealift_model *>(model)->package.content(name);  // locks itself
      return SEALIFT_OK;
    });
  }
  if (size_bytes != nullptr) *size_bytes = content == nullptr ? 0 : content->size();
  return content == nullptr ? nullptr : content->c_str();
}

// ---- constants -----------------------------------------------------------------------------------------------------------

int32_t sealift_num_constants(const sealift_model *model) { return model->api.num_constants; }

const sealift_constant_info *sealift_constant(const sealift_model *model, int32_t index) {
  return index >= 0 && index < model->api.num_constants ? &model->constants[static_cast<size_t>(index)] : nullptr;
}

sealift_status sealift_load_constants(sealift_model *model, int32_t count, const char *const *fqns, const DLTensor *values, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (model == nullptr) return null_argument(err, "model");
  if (count < 0 || (count > 0 && (fqns == nullptr || values == nullptr))) return null_argument(err, "fqns or values");
  return guarded(err, [&] {
    model->weight_sets.load(count, fqns, values);
    return SEALIFT_OK;
  });
}

sealift_status sealift_swap_constants(sealift_model *model, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (model == nullptr) return null_argument(err, "model");
  return guarded(err, [&] {
    model->weight_sets.swap();
    return SEALIFT_OK;
  });
}

// ---- contexts ------------------------------------------------------------------------------------------------------------

sealift_status sealift_context_create(sealift_model *model, sealift_context **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (model == nullptr) return null_argument(err, "model");
  SEALIFT_LOG_API_USAGE_ONCE("sealift.context");
  return guarded(err, [&] {
    sealift_status status;
    *out = new_context(*model, err, &status);
    if (*out != nullptr) (*out)->core.reset_states();
    return status;
  });
}

void sealift_context_destroy(sealift_context *context) {
  if (context == nullptr) return;
  sealift_model *model = context->model;
  delete context;
  model->release();
}

sealift_status sealift_context_reset(sealift_context *context, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (context == nullptr) return null_argument(err, "context");
  const Turn turn(*context);
  if (!turn.is_mine()) return busy(err);
  return guarded(err, [&] {
    take_weights(*context);
    context->core.reset_states();
    return SEALIFT_OK;
  });
}

sealift_status sealift_context_clone(const sealift_context *context, sealift_context **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (context == nullptr) return null_argument(err, "context");
  const Turn turn(const_cast<sealift_context &>(*context));
  if (!turn.is_mine()) return busy(err);
  return guarded(err, [&] {
    sealift_status status;
    *out = new_context(*context->model, err, &status);
    if (*out != nullptr) (*out)->core.copy_states(context->core);
    return status;
  });
}

// ---- running -------------------------------------------------------------------------------------------------------------

sealift_status sealift_output_shapes(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int64_t (*shapes)[16], int64_t (*strides)[16],
                                     char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (context == nullptr) return null_argument(err, "context");
  if (inputs == nullptr && num_inputs > 0) return null_argument(err, "inputs");
  const Turn turn(*context);
  if (!turn.is_mine()) return busy(err);
  Context &core = context->core;
  const sealift_status status = core.measure(num_inputs, inputs, err);
  if (status != SEALIFT_OK) return status;
  for (int32_t i = 0; i < core.api().num_outputs; ++i) {
    if (core.api().outputs[i].optional != 0) continue;
    if (shapes != nullptr) core.output_shape(i, shapes[i]);
    for (int32_t d = 0; strides != nullptr && d < core.api().outputs[i].rank; ++d) strides[i][d] = core.output_strides(i)[d];
  }
  return SEALIFT_OK;
}

sealift_status sealift_run_into(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int32_t num_outputs, const DLTensor *outputs,
                                char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (context == nullptr) return null_argument(err, "context");
  if ((inputs == nullptr && num_inputs > 0) || (outputs == nullptr && num_outputs > 0)) return null_argument(err, "inputs or outputs");
  const Turn turn(*context);
  if (!turn.is_mine()) return busy(err);
  Context &core = context->core;
  begin_run(*context);
  sealift_status status = core.prepare(num_inputs, inputs, err);
  if (status == SEALIFT_OK) status = core.bind_outputs(num_outputs, outputs, inputs, err);
  if (status == SEALIFT_OK) status = core.execute(err);
  if (status == SEALIFT_OK) core.deliver_outputs(outputs, inputs);
  return status;
}

sealift_status sealift_run(sealift_context *context, int32_t num_inputs, const DLTensor *inputs, int32_t num_outputs, DLManagedTensorVersioned **outputs,
                           char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (context == nullptr) return null_argument(err, "context");
  if ((inputs == nullptr && num_inputs > 0) || (outputs == nullptr && num_outputs > 0)) return null_argument(err, "inputs or outputs");
  for (int32_t i = 0; i < num_outputs; ++i) outputs[i] = nullptr;
  const Turn turn(*context);
  if (!turn.is_mine()) return busy(err);
  Context &core = context->core;
  const sealift_model_api &api = core.api();
  if (num_outputs != api.num_outputs) {
    return fail(err, SEALIFT_ERROR_INPUT_COUNT, "room for %d outputs given, model '%s' has %d; help: pass one pointer for each, also where it is None",
                static_cast<int>(num_outputs), api.name, static_cast<int>(api.num_outputs));
  }
  begin_run(*context);
  sealift_status status = core.prepare(num_inputs, inputs, err);
  for (int32_t i = 0; i < num_outputs && status == SEALIFT_OK; ++i) {
    core.set_output(i, nullptr);
    if (api.outputs[i].optional != 0) continue;
    OwnedTensor *tensor = make_tensor(core, i);
    if (tensor == nullptr) {
      status = fail(err, SEALIFT_ERROR_MEMORY, "no memory for output '%s' (%" PRId64 " bytes); help: run a smaller batch", api.outputs[i].name,
                    core.output_bytes(i));
      break;
    }
    outputs[i] = &tensor->managed;
    if (api.outputs[i].alias_input < 0) core.set_output(i, tensor->managed.dl_tensor.data);
  }
  if (status == SEALIFT_OK) status = core.execute(err);
  for (int32_t i = 0; i < num_outputs && status == SEALIFT_OK; ++i) {
    if (outputs[i] != nullptr && api.outputs[i].alias_input >= 0) core.copy_alias(i, inputs, outputs[i]->dl_tensor.data);
  }
  if (status != SEALIFT_OK) {
    for (int32_t i = 0; i < num_outputs; ++i) {
      if (outputs[i] != nullptr) free_tensor(outputs[i]);
      outputs[i] = nullptr;
    }
  }
  return status;
}

// ---- record points -------------------------------------------------------------------------------------------------------

int32_t sealift_num_kernels(const sealift_model *model) { return model->api.num_kernels; }

const sealift_kernel_info *sealift_kernel(const sealift_model *model, int32_t id) {
  return id >= 0 && id < model->api.num_kernels ? &model->kernels[static_cast<size_t>(id)] : nullptr;
}

sealift_status sealift_add_callback(sealift_on_begin on_begin, sealift_on_end on_end, void *user, double sampling_probability, sealift_callback *out) {
  if (out == nullptr) return SEALIFT_ERROR_ARGUMENT;
  *out = 0;
  if ((on_begin == nullptr && on_end == nullptr) || !(sampling_probability > 0 && sampling_probability <= 1)) return SEALIFT_ERROR_ARGUMENT;
  return guarded(ErrorText{nullptr, 0}, [&] {
    *out = sealift::runtime::add_callback(on_begin, on_end, user, sampling_probability);
    return *out == 0 ? SEALIFT_ERROR_MEMORY : SEALIFT_OK;
  });
}

sealift_status sealift_remove_callback(sealift_callback callback) {
  return guarded(ErrorText{nullptr, 0}, [&] { return sealift::runtime::remove_callback(callback) ? SEALIFT_OK : SEALIFT_ERROR_ARGUMENT; });
}

// ---- the machine ---------------------------------------------------------------------------------------------------------

uint32_t sealift_machine_isas(void) { return sealift::runtime::machine_isas(); }
