// sealift.h's functions. No exception passes them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "context_handle.h"
#include "cpu.h"
#include "dtype.h"
#include "failure.h"
#include "model_table.h"
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
  explicit Turn(std::atomic<uint32_t> &busy) : busy_(busy), mine_(busy.exchange(1, std::memory_order_acquire) == 0) {}
  explicit Turn(sealift_context &context) : Turn(*context.busy) {}
  ~Turn() {
    if (mine_) busy_.store(0, std::memory_order_release);
  }
  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;
  bool is_mine() const { return mine_; }

 private:
  std::atomic<uint32_t> &busy_;
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

class Run {
 public:
  explicit Run(sealift_context &context) : context_(context) { begin_run(context); }
  ~Run() { context_.records.end_run(); }
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

 private:
  sealift_context &context_;
};

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

sealift_context *new_context(sealift_model &model, ErrorText err, sealift_status *status, void *const *shared = nullptr) {
  std::unique_ptr<sealift_context> context(new sealift_context);
  *status = context->core.init(model.api, model.isa, model.num_threads, HOST, shared, err);
  if (*status != SEALIFT_OK) return nullptr;
  context->model = &model;
  take_weights(*context);
  model.owners.fetch_add(1, std::memory_order_relaxed);
  return context.release();
}

void drop_context(sealift_context *context) {
  sealift_model *model = context->model;
  delete context;
  model->release();
}

// The options as this version knows them, from a caller that may be built with an older header: what its struct lacks keeps its default.
sealift_status read_options(const sealift_open_options *options, sealift_open_options *chosen, ErrorText err) {
  sealift_open_options_init(chosen);
  if (options == nullptr) return SEALIFT_OK;
  if (options->struct_bytes < sizeof options->struct_bytes)
    return fail(err, SEALIFT_ERROR_ARGUMENT, "options.struct_bytes is not set; help: call sealift_open_options_init first");
  memcpy(chosen, options, std::min<size_t>(options->struct_bytes, sizeof *chosen));
  return SEALIFT_OK;
}

std::string type_text(const sealift_state_spec &state) {
  std::string text = std::string(sealift::runtime::DTYPES[state.dtype].name) + "[";
  for (int32_t d = 0; d < state.rank; ++d) text += (d == 0 ? "" : ", ") + std::to_string(state.shape[d]);
  return text + "]";
}

// Where the states of `model` lie that an earlier context of the session has, too; NULL for the others.
std::vector<void *> shared_states(const sealift_session &session, const sealift_model &model) {
  std::vector<void *> shared(static_cast<size_t>(model.api.num_states) + 1, nullptr);
  for (int32_t i = 0; i < model.api.num_states; ++i) {
    const sealift_state_spec &state = model.api.states[i];
    for (sealift_context *other : session.contexts) {
      for (int32_t j = 0; j < other->model->api.num_states; ++j) {
        const sealift_state_spec &known = other->model->api.states[j];
        if (strcmp(known.fqn, state.fqn) != 0) continue;
        if (type_text(known) != type_text(state)) {
          throw sealift::runtime::Failure(SEALIFT_ERROR_ARGUMENT, std::string("buffer '") + state.fqn + "' is " + type_text(known) + " in model '" +
                                                                      other->model->name + "' and " + type_text(state) + " in '" + model.name +
                                                                      "', so that they cannot share it; help: make the buffers alike, or open the models one by one");
        }
        shared[static_cast<size_t>(i)] = other->core.frame().states[j];
      }
    }
  }
  return shared;
}

std::unique_ptr<sealift_session> new_session(const std::vector<sealift_model *> &models, ErrorText err, sealift_status *status) {
  std::unique_ptr<sealift_session> session(new sealift_session);
  session->contexts.reserve(models.size());
  *status = SEALIFT_OK;
  for (sealift_model *model : models) {
    sealift_context *context = new_context(*model, err, status, shared_states(*session, *model).data());
    if (context == nullptr) return nullptr;
    context->session = session.get();
    context->busy = &session->busy;
    session->contexts.push_back(context);
  }
  return session;
}

}  // namespace

sealift_session::~sealift_session() {
  for (auto context = contexts.rbegin(); context != contexts.rend(); ++context) drop_context(*context);  // a state's owner comes first
}

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
  const sealift_status read = read_options(options, &chosen, err);
  if (read != SEALIFT_OK) return read;
  return guarded(err, [&] {
    *out = sealift_model::open(path, chosen).release();
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

int32_t sealift_input_is_changed(const sealift_model *model, int32_t index) {
  const uint8_t *changed = sealift::runtime::changed_inputs(model->api);
  return index >= 0 && index < model->api.num_inputs && changed != nullptr ? changed[index] != 0 : 0;
}

const char *sealift_input_spec(const sealift_model *model) { return model->api.in_spec; }
const char *sealift_output_spec(const sealift_model *model) { return model->api.out_spec; }

const char *sealift_member(const sealift_model *model, const char *name, size_t *size_bytes) {
  const std::string *content = nullptr;
  if (name != nullptr) {
    guarded(ErrorText{nullptr, 0}, [&] {
      content = const_cast<sealift_model *>(model)->package->content(name);  // locks itself
      return SEALIFT_OK;
    });
  }
  if (size_bytes != nullptr) *size_bytes = content == nullptr ? 0 : content->size();
  return content == nullptr ? nullptr : content->c_str();
}

// ---- packages ------------------------------------------------------------------------------------------------------------

sealift_status sealift_package_open(const char *path, const sealift_open_options *options, sealift_package **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (path == nullptr) return null_argument(err, "path");
  sealift_open_options chosen;
  const sealift_status read = read_options(options, &chosen, err);
  if (read != SEALIFT_OK) return read;
  return guarded(err, [&] {
    using sealift::runtime::Mapping;
    using sealift::runtime::Package;
    const auto package = std::make_shared<Package>(path);
    std::unique_ptr<sealift_package> opened(new sealift_package);
    opened->models.reserve(package->models().size());
    std::map<const Package::Member *, std::shared_ptr<Mapping>> mapped;  // what models share is mapped and verified once
    for (const std::string &name : package->models()) {
      package->verify_small_members(name);
      const Package::Member *member = package->weights(name);
      std::shared_ptr<Mapping> &weights = mapped[member];
      if (weights == nullptr) weights = sealift_model::map_weights(*package, member, chosen.verify != 0);
      opened->models.push_back(new sealift_model(package, name, weights, chosen));
    }
    *out = opened.release();
    return SEALIFT_OK;
  });
}

void sealift_package_close(sealift_package *package) { delete package; }

int32_t sealift_package_num_models(const sealift_package *package) { return static_cast<int32_t>(package->models.size()); }

sealift_model *sealift_package_model(const sealift_package *package, int32_t index) {
  return index >= 0 && index < sealift_package_num_models(package) ? package->models[static_cast<size_t>(index)] : nullptr;
}

sealift_model *sealift_package_find(const sealift_package *package, const char *name) {
  for (sealift_model *model : package->models) {
    if (name != nullptr && model->name == name) return model;
  }
  return nullptr;
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
  if (context != nullptr && context->session == nullptr) drop_context(context);
}

sealift_status sealift_context_reset(sealift_context *context, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (context == nullptr) return null_argument(err, "context");
  if (context->session != nullptr) return sealift_session_reset(context->session, err_text, err_len);
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
  if (context->session != nullptr) return fail(err, SEALIFT_ERROR_ARGUMENT, "the context is a session's; help: clone the session");
  const Turn turn(const_cast<sealift_context &>(*context));
  if (!turn.is_mine()) return busy(err);
  return guarded(err, [&] {
    sealift_status status;
    *out = new_context(*context->model, err, &status);
    if (*out != nullptr) (*out)->core.copy_states(context->core);
    return status;
  });
}

// ---- sessions ------------------------------------------------------------------------------------------------------------

sealift_status sealift_session_create(const sealift_package *package, sealift_session **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (package == nullptr) return null_argument(err, "package");
  return guarded(err, [&] {
    sealift_status status;
    std::unique_ptr<sealift_session> session = new_session(package->models, err, &status);
    if (session == nullptr) return status;
    for (sealift_context *context : session->contexts) context->core.reset_states();
    *out = session.release();
    return SEALIFT_OK;
  });
}

void sealift_session_destroy(sealift_session *session) { delete session; }

sealift_context *sealift_session_context(sealift_session *session, int32_t index) {
  return session != nullptr && index >= 0 && static_cast<size_t>(index) < session->contexts.size() ? session->contexts[static_cast<size_t>(index)] : nullptr;
}

sealift_status sealift_session_reset(sealift_session *session, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (session == nullptr) return null_argument(err, "session");
  const Turn turn(session->busy);
  if (!turn.is_mine()) return busy(err);
  return guarded(err, [&] {
    for (sealift_context *context : session->contexts) {
      take_weights(*context);
      context->core.reset_states();
    }
    return SEALIFT_OK;
  });
}

sealift_status sealift_session_clone(const sealift_session *session, sealift_session **out, char *err_text, size_t err_len) {
  const ErrorText err{err_text, err_len};
  if (out == nullptr) return null_argument(err, "out");
  *out = nullptr;
  if (session == nullptr) return null_argument(err, "session");
  const Turn turn(const_cast<sealift_session *>(session)->busy);
  if (!turn.is_mine()) return busy(err);
  return guarded(err, [&] {
    std::vector<sealift_model *> models;
    models.reserve(session->contexts.size());
    for (const sealift_context *context : session->contexts) models.push_back(context->model);
    sealift_status status;
    std::unique_ptr<sealift_session> copy = new_session(models, err, &status);
    if (copy == nullptr) return status;
    for (size_t i = 0; i < copy->contexts.size(); ++i) copy->contexts[i]->core.copy_states(session->contexts[i]->core);
    *out = copy.release();
    return SEALIFT_OK;
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
  const Run run(*context);
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
  const Run run(*context);
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
    *out = sealift::runtime::add_callback(on_begin, on_end, user, sampling_probability, false);
    return *out == 0 ? SEALIFT_ERROR_MEMORY : SEALIFT_OK;
  });
}

sealift_status sealift_remove_callback(sealift_callback callback) {
  return guarded(ErrorText{nullptr, 0}, [&] { return sealift::runtime::remove_callback(callback) ? SEALIFT_OK : SEALIFT_ERROR_ARGUMENT; });
}

// ---- the machine ---------------------------------------------------------------------------------------------------------

uint32_t sealift_machine_isas(void) { return sealift::runtime::machine_isas(); }
