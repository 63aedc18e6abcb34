#include "container.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "cpu.h"
#include "dtype.h"
#include "model_table.h"
#include "pack_layout.h"
#include "strided_copy.h"
#include "thread_pool.h"

#include "glibc_baseline.h"

namespace sealift::runtime {

namespace {

class Lock {
 public:
  explicit Lock(pthread_mutex_t &mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

 private:
  pthread_mutex_t &mutex_;
};

// The containers of this library share the pool; its threads must end before the library is unloaded.
pthread_mutex_t containers_lock = PTHREAD_MUTEX_INITIALIZER;
int64_t containers = 0;

sealift_status no_memory(ErrorText err) { return fail(err, SEALIFT_ERROR_MEMORY, "out of memory"); }

}  // namespace

struct Container::Buffer {
  int64_t references;
  alignas(64) char data[1];

  static Buffer *make(size_t bytes) {
    void *memory = nullptr;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, 64, offsetof(Buffer, data) + bytes + 1) != 0) return nullptr;
    Buffer *buffer = static_cast<Buffer *>(memory);
    buffer->references = 1;
    return buffer;
  }
  static void drop(Buffer *buffer) {
    if (buffer != nullptr && --buffer->references == 0) free(buffer);
  }
};

// One version of the weights. It does not change once a run may have it, except for its count.
struct Container::WeightSet {
  int64_t references;
  const void **pointers;
  Buffer **buffers;  // NULL where the pointer lies in the weights file
};

struct Container::Runner {
  Context context;  // first: the frame's host_context points to it
  Container *container = nullptr;
  WeightSet *weights = nullptr;
  Runner *next = nullptr;
  DLTensor *inputs = nullptr;
  RecordFunctionHandle record = nullptr;
};

// ---- life ----------------------------------------------------------------------------------------------------------------

Container *Container::create(const sealift_model_api *api, void *caller, void *self, ErrorText err) {
  if (check_model_table(api, err) != SEALIFT_OK) return nullptr;
  void *memory = malloc(sizeof(Container));
  if (memory == nullptr) {
    no_memory(err);
    return nullptr;
  }
  Container *container = new (memory) Container;
  {
    const Lock lock(containers_lock);
    ++containers;
  }
  container->api_ = api;
  sealift_status status = bind_torch(container->shim_, caller, err);
  if (status == SEALIFT_OK) {
    const uint32_t built = built_isas(*api), machine = machine_isas();
    container->isa_ = best_isa(built, machine);
    if (container->isa_ < 0) {
      char built_text[64], machine_text[64];
      status = fail(err, SEALIFT_ERROR_ISA, "model '%s' is built for %s; this machine has %s; help: compile it for this machine's instruction set as well",
                    api->name, isa_names(built, built_text), isa_names(machine, machine_text));
    }
  }
  if (status == SEALIFT_OK) status = container->map_weights(self, err);
  if (status == SEALIFT_OK) {
    container->active_ = container->new_set(nullptr);
    if (container->active_ == nullptr) status = no_memory(err);
  }
  if (status == SEALIFT_OK) {
    uint32_t threads = 0;
    if (container->shim_.torch_get_num_threads == nullptr || container->shim_.torch_get_num_threads(&threads) != 0 || threads == 0)
      threads = static_cast<uint32_t>(usable_cores());
    container->num_threads_ = static_cast<int32_t>(threads < 1024 ? threads : 1024);
    container->host_ = sealift_host{SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_host), Context::parallel_for, record_begin, record_end};
    // The first context is made now: what does not work is told here, and a model's state has one context for good.
    Runner *runner = container->take_runner(err);
    if (runner != nullptr) {
      runner->context.reset_states();
      container->give_runner(runner);
    } else {
      status = SEALIFT_ERROR_MEMORY;
    }
  }
  if (status == SEALIFT_OK) return container;
  destroy(container);
  return nullptr;
}

void Container::destroy(Container *container) {
  container->~Container();
  free(container);
  const Lock lock(containers_lock);
  if (--containers == 0) ThreadPool::of_process().stop();
}

Container::~Container() {
  drop_extracted();
  while (free_runners_ != nullptr) {
    Runner *runner = free_runners_;
    free_runners_ = runner->next;
    free(runner->inputs);
    runner->~Runner();
    free(runner);
  }
  drop_set(active_);
  drop_set(inactive_);
  if (weights_file_ != nullptr) munmap(const_cast<char *>(weights_file_), weights_file_bytes_);
}

// The weights lie beside the library: PyTorch's loader extracts both into one folder.
sealift_status Container::map_weights(void *self, ErrorText err) {
  if (api_->weights_bytes == 0) return SEALIFT_OK;
  Dl_info image;
  char path[4096];
  if (dladdr(self, &image) == 0 || strlen(image.dli_fname) + 16 > sizeof path)
    return fail(err, SEALIFT_ERROR_FILE, "the model library's own path is not found");
  strcpy(path, image.dli_fname);
  char *end = path + strlen(path);
  static const char *const suffixes[] = {".so", ".wrapper"};
  for (const char *suffix : suffixes) {
    const size_t length = strlen(suffix);
    if (static_cast<size_t>(end - path) > length && memcmp(end - length, suffix, length) == 0) end -= length;
  }
  strcpy(end, ".weights.bin");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {  // the file that the package's models share: contracts/PACKAGE.md
    char *name = strrchr(path, '/');
    name = name == nullptr ? path : name + 1;
    static const char shared[] = "sealift.weights.bin";
    if (static_cast<size_t>(name - path) + sizeof shared <= sizeof path) {
      strcpy(name, shared);
      fd = open(path, O_RDONLY | O_CLOEXEC);
    }
  }
  const off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
  if (bytes < 0 || static_cast<uint64_t>(bytes) < api_->weights_bytes) {
    if (fd >= 0) close(fd);
    return fail(err, SEALIFT_ERROR_FILE, "the weights file %s is missing or too short; help: load the whole package, not its library alone", path);
  }
  void *mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return fail(err, SEALIFT_ERROR_FILE, "the weights file %s cannot be mapped", path);
  weights_file_ = static_cast<const char *>(mapped);
  weights_file_bytes_ = static_cast<size_t>(bytes);
  return SEALIFT_OK;
}

// ---- weights -------------------------------------------------------------------------------------------------------------

// A copy of `base`, or the weights file's values. The caller holds lock_ if `base` may be shared.
Container::WeightSet *Container::new_set(const WeightSet *base) const {
  const size_t count = static_cast<size_t>(api_->num_weights);
  void *memory = calloc(1, sizeof(WeightSet) + count * 2 * sizeof(void *));
  if (memory == nullptr) return nullptr;
  WeightSet *set = static_cast<WeightSet *>(memory);
  set->references = 1;
  set->pointers = static_cast<const void **>(static_cast<void *>(set + 1));
  set->buffers = static_cast<Buffer **>(const_cast<void *>(static_cast<const void *>(set->pointers + count)));
  for (size_t i = 0; i < count; ++i) {
    set->pointers[i] = base == nullptr ? weights_file_ + api_->weights[i].offset_bytes : base->pointers[i];
    set->buffers[i] = base == nullptr ? nullptr : base->buffers[i];
    if (set->buffers[i] != nullptr) ++set->buffers[i]->references;
  }
  return set;
}

void Container::drop_set(WeightSet *set) {
  if (set == nullptr || --set->references > 0) return;
  for (int32_t i = 0; i < api_->num_weights; ++i) Buffer::drop(set->buffers[i]);
  free(set);
}

void Container::put_set(WeightSet *set, bool use_inactive) {
  const Lock lock(lock_);
  WeightSet *&place = use_inactive ? inactive_ : active_;
  drop_set(place);
  place = set;
}

int32_t Container::state_of(int32_t constant) const {
  for (int32_t i = 0; i < api_->num_states; ++i) {
    if (api_->weights[api_->states[i].initial_weight].constant == constant) return i;
  }
  return -1;
}

// The values of a tensor as the constant's row-major array: in place, or in *copy.
sealift_status Container::copy_constant(int32_t constant, TensorHandle value, void **plain, Buffer **copy, ErrorText err) const {
  const sealift_constant_spec &spec = api_->constants[constant];
  DLTensor tensor;
  const sealift_status status = describe(value, "constant", spec.fqn, &tensor, err);
  if (status != SEALIFT_OK) return status;
  if (tensor.device.device_type != kDLCPU) return fail(err, SEALIFT_ERROR_CONSTANT, "constant '%s' is not on the CPU; help: copy it there first", spec.fqn);
  if (!is_dtype(tensor.dtype, spec.dtype)) {
    char buffer[32];
    return fail(err, SEALIFT_ERROR_CONSTANT, "constant '%s' has dtype %s, the new value has %s; help: convert it", spec.fqn, DTYPES[spec.dtype].name,
                dtype_name(tensor.dtype, buffer));
  }
  bool same = tensor.ndim == spec.rank;
  for (int32_t d = 0; d < spec.rank && same; ++d) same = tensor.shape[d] == spec.shape[d];
  if (!same)
    return fail(err, SEALIFT_ERROR_CONSTANT, "constant '%s': the new value has another shape; help: load the weights of the model that was compiled",
                spec.fqn);
  int64_t strides[SEALIFT_MAX_RANK], stride = 1;
  for (int32_t d = spec.rank - 1; d >= 0; --d) {
    strides[d] = stride;
    same = same && (tensor.strides[d] == stride || spec.shape[d] == 1);
    stride *= spec.shape[d];
  }
  *plain = tensor.data;
  if (same) return SEALIFT_OK;
  *copy = Buffer::make(static_cast<size_t>(row_major_bytes(spec)));
  if (*copy == nullptr) return no_memory(err);
  copy_strided((*copy)->data, strides, static_cast<const char *>(tensor.data), tensor.strides, spec.shape, spec.rank, DTYPES[spec.dtype].bytes);
  *plain = (*copy)->data;
  return SEALIFT_OK;
}

sealift_status Container::update_constants(const ConstantEntry *entries, size_t count, bool use_inactive, bool must_be_all, ErrorText err) {
  const Lock updating(update_);
  WeightSet *set;
  {
    const Lock lock(lock_);
    set = new_set(active_);
  }
  if (set == nullptr) return no_memory(err);
  sealift_status status = SEALIFT_OK;
  for (int32_t c = 0; c < api_->num_constants && status == SEALIFT_OK; ++c) {
    const sealift_constant_spec &constant = api_->constants[c];
    TensorHandle value = nullptr;
    for (size_t i = 0; i < count && value == nullptr; ++i) {
      if (strcmp(entries[i].name, constant.name) == 0) value = entries[i].handle;
    }
    if (value == nullptr) {
      if (must_be_all)
        status = fail(err, SEALIFT_ERROR_CONSTANT, "constant '%s' is missing from a full update; help: pass every constant, or check_full_update=False",
                      constant.fqn);
      continue;
    }
    void *plain = nullptr;
    Buffer *copy = nullptr;
    status = copy_constant(c, value, &plain, &copy, err);
    for (int32_t w = 0; w < api_->num_weights && status == SEALIFT_OK; ++w) {
      if (api_->weights[w].constant != c) continue;
      Buffer *stored = Buffer::make(static_cast<size_t>(api_->weights[w].size_bytes));
      if (stored == nullptr) {
        status = no_memory(err);
        break;
      }
      memset(stored->data, 0, static_cast<size_t>(api_->weights[w].size_bytes));
      pack(constant, api_->weights[w], plain, stored->data);
      {
        const Lock lock(lock_);  // the buffer that goes may be shared with other sets
        Buffer::drop(set->buffers[w]);
      }
      set->buffers[w] = stored;
      set->pointers[w] = stored->data;
    }
    const int32_t state = state_of(c);
    if (status == SEALIFT_OK && state >= 0 && !use_inactive) {
      const Lock turn(states_);
      memcpy(free_runners_->context.frame().states[state], plain, static_cast<size_t>(row_major_bytes(constant)));
    }
    Buffer::drop(copy);
  }
  if (status == SEALIFT_OK) {
    put_set(set, use_inactive);
  } else {
    const Lock lock(lock_);
    drop_set(set);
  }
  return status;
}

// The blob has the weights file's format. It is the caller's and goes away after the call.
sealift_status Container::update_from_blob(const uint8_t *blob, ErrorText err) {
  const Lock updating(update_);
  WeightSet *set = new_set(nullptr);
  if (set == nullptr) return no_memory(err);
  for (int32_t w = 0; w < api_->num_weights; ++w) {
    const sealift_weight_spec &weight = api_->weights[w];
    Buffer *stored = Buffer::make(static_cast<size_t>(weight.size_bytes));
    if (stored == nullptr) {
      drop_set(set);
      return no_memory(err);
    }
    memcpy(stored->data, blob + weight.offset_bytes, static_cast<size_t>(weight.size_bytes));
    set->buffers[w] = stored;
    set->pointers[w] = stored->data;
  }
  put_set(set, false);
  return SEALIFT_OK;
}

sealift_status Container::swap_constants(ErrorText err) {
  const Lock updating(update_);
  // The buffers that the model mutates are among its constants: they take the new set's values.
  if (api_->num_states > 0) pthread_mutex_lock(&states_);
  sealift_status status = SEALIFT_OK;
  {
    const Lock lock(lock_);
    if (inactive_ == nullptr) {
      status = fail(err, SEALIFT_ERROR_CONSTANT, "there is no inactive set of constants; help: load one with use_inactive=True first");
    } else {
      WeightSet *before = active_;
      active_ = inactive_;
      inactive_ = before;
      if (api_->num_states > 0) {
        free_runners_->context.set_weights(active_->pointers);
        free_runners_->context.reset_states();
      }
    }
  }
  if (api_->num_states > 0) pthread_mutex_unlock(&states_);
  return status;
}

void Container::free_inactive() {
  const Lock updating(update_);
  put_set(nullptr, true);
}

void Container::drop_extracted() {
  for (size_t i = 0; i < num_extracted_; ++i) shim_.aoti_torch_delete_tensor_object(extracted_[i].handle);
  free(extracted_);
  extracted_ = nullptr;
  num_extracted_ = 0;
}

sealift_status Container::extract_constants(bool use_inactive, const ConstantEntry **entries, size_t *count, ErrorText err) {
  const Lock updating(update_);  // the sets stay as they are
  drop_extracted();
  *entries = nullptr;
  *count = 0;
  WeightSet *set = use_inactive ? inactive_ : active_;
  if (set == nullptr) return fail(err, SEALIFT_ERROR_CONSTANT, "there is no inactive set of constants; help: load one with use_inactive=True first");
  extracted_ = static_cast<ConstantEntry *>(calloc(static_cast<size_t>(api_->num_constants) + 1, sizeof(ConstantEntry)));
  if (extracted_ == nullptr) return no_memory(err);
  for (int32_t c = 0; c < api_->num_constants; ++c) {
    const sealift_constant_spec &constant = api_->constants[c];
    int32_t chosen = -1;
    for (int32_t w = 0; w < api_->num_weights; ++w) {
      if (api_->weights[w].constant == c && (chosen < 0 || api_->weights[w].layout == SEALIFT_ROW_MAJOR)) chosen = w;
    }
    if (chosen < 0) continue;  // the model does not use it
    int64_t strides[SEALIFT_MAX_RANK], stride = 1;
    for (int32_t d = constant.rank - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= constant.shape[d];
    }
    TensorHandle tensor = nullptr;
    void *data = nullptr;
    if (shim_.aoti_torch_empty_strided(constant.rank, constant.shape, strides, shim_.dtypes[constant.dtype], shim_.aoti_torch_device_type_cpu(), 0,
                                       &tensor) != 0 ||
        shim_.aoti_torch_get_data_ptr(tensor, &data) != 0) {
      return no_memory(err);
    }
    extracted_[num_extracted_++] = ConstantEntry{constant.name, tensor};
    const int32_t state = state_of(c);
    if (state >= 0 && !use_inactive) {
      const Lock turn(states_);
      memcpy(data, free_runners_->context.frame().states[state], static_cast<size_t>(row_major_bytes(constant)));
    } else if (stride > 0) {
      unpack(constant, api_->weights[chosen], set->pointers[chosen], data);
    }
  }
  *entries = extracted_;
  *count = num_extracted_;
  return SEALIFT_OK;
}

// ---- runs ----------------------------------------------------------------------------------------------------------------

Container::Runner *Container::take_runner(ErrorText err) {
  Runner *runner;
  {
    const Lock lock(lock_);
    runner = free_runners_;
    if (runner != nullptr) {
      free_runners_ = runner->next;
      runner->weights = active_;
      ++active_->references;
    }
  }
  if (runner == nullptr) {
    void *memory = malloc(sizeof(Runner));
    if (memory == nullptr) {
      no_memory(err);
      return nullptr;
    }
    runner = new (memory) Runner;
    runner->container = this;
    runner->inputs = static_cast<DLTensor *>(calloc(static_cast<size_t>(api_->num_inputs) + 1, sizeof(DLTensor)));
    if (runner->inputs == nullptr || runner->context.init(*api_, isa_, num_threads_, host_, nullptr, err) != SEALIFT_OK) {
      if (runner->inputs == nullptr) no_memory(err);
      free(runner->inputs);
      runner->~Runner();
      free(runner);
      return nullptr;
    }
    const Lock lock(lock_);
    runner->weights = active_;
    ++active_->references;
  }
  runner->context.set_weights(runner->weights->pointers);
  return runner;
}

void Container::give_runner(Runner *runner) {
  const Lock lock(lock_);
  drop_set(runner->weights);
  runner->weights = nullptr;
  runner->next = free_runners_;
  free_runners_ = runner;
}

sealift_status Container::describe(TensorHandle tensor, const char *kind, const char *name, DLTensor *described, ErrorText err) const {
  int32_t dtype = 0, device = 0, layout = 0;
  int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  void *data = nullptr;
  if (shim_.aoti_torch_get_layout(tensor, &layout) != 0 || layout != shim_.aoti_torch_layout_strided()) {
    return fail(err, SEALIFT_ERROR_DTYPE, "%s '%s' is not a dense tensor; help: call .to_dense() on it", kind, name);
  }
  if (shim_.aoti_torch_get_dtype(tensor, &dtype) != 0 || shim_.aoti_torch_get_device_type(tensor, &device) != 0 ||
      shim_.aoti_torch_get_dim(tensor, &rank) != 0 || shim_.aoti_torch_get_sizes(tensor, &sizes) != 0 ||
      shim_.aoti_torch_get_strides(tensor, &strides) != 0) {
    return fail(err, SEALIFT_ERROR_ARGUMENT, "%s '%s' cannot be read", kind, name);
  }
  const bool on_cpu = device == shim_.aoti_torch_device_type_cpu();
  if (on_cpu && shim_.aoti_torch_get_data_ptr(tensor, &data) != 0)
    return fail(err, SEALIFT_ERROR_ARGUMENT, "%s '%s' has no memory that can be read", kind, name);
  DLDataType type = {kDLOpaqueHandle, static_cast<uint8_t>(dtype), 1};  // a dtype that sealift does not know
  for (int32_t known = 0; known < NUM_DTYPES; ++known) {
    if (shim_.dtypes[known] == dtype) type = dlpack_dtype(known);
  }
  const bool is_complex = type.code == kDLComplex;
  const bool is_lazy = ((is_complex || type.code == kDLFloat) && shim_.is_neg != nullptr && shim_.is_neg(tensor)) ||
                       (is_complex && shim_.is_conj != nullptr && shim_.is_conj(tensor));
  if (is_lazy) {
    return fail(err, SEALIFT_ERROR_DTYPE, "%s '%s' is a view that torch negates or conjugates when it is read; help: pass x.resolve_neg().resolve_conj()",
                kind, name);
  }
  *described = DLTensor{data, DLDevice{on_cpu ? kDLCPU : kDLExtDev, 0}, static_cast<int32_t>(rank), type, sizes, strides, 0};
  return SEALIFT_OK;
}

sealift_status Container::make_output(const Context &core, int32_t output, TensorHandle *handle, void **data, ErrorText err) const {
  const sealift_tensor_spec &spec = api_->outputs[output];
  int64_t shape[SEALIFT_MAX_RANK];
  core.output_shape(output, shape);
  if (shim_.aoti_torch_empty_strided(spec.rank, shape, core.output_strides(output), shim_.dtypes[spec.dtype], shim_.aoti_torch_device_type_cpu(), 0,
                                     handle) != 0 ||
      shim_.aoti_torch_get_data_ptr(*handle, data) != 0) {
    return fail(err, SEALIFT_ERROR_MEMORY, "no memory for output '%s' (%" PRId64 " bytes); help: run a smaller batch", spec.name, core.output_bytes(output));
  }
  return SEALIFT_OK;
}

sealift_status Container::run_taken(Runner &runner, TensorHandle *inputs, TensorHandle *outputs, bool single_threaded, ErrorText err) {
  Context &core = runner.context;
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    const sealift_status status = describe(inputs[i], "input", api_->inputs[i].name, &runner.inputs[i], err);
    if (status != SEALIFT_OK) return status;
  }
  sealift_status status = core.prepare(api_->num_inputs, runner.inputs, err);
  for (int32_t i = 0; i < api_->num_outputs && status == SEALIFT_OK; ++i) {
    core.set_output(i, nullptr);
    const sealift_tensor_spec &spec = api_->outputs[i];
    if (spec.optional != 0) continue;
    if (spec.alias_input >= 0) {
      if (shim_.aoti_torch_new_tensor_handle(inputs[spec.alias_input], &outputs[i]) != 0) status = no_memory(err);
      continue;
    }
    void *data = nullptr;
    status = make_output(core, i, &outputs[i], &data, err);
    core.set_output(i, data);
  }
  if (status != SEALIFT_OK) return status;
  uint32_t threads = static_cast<uint32_t>(num_threads_);
  if (shim_.torch_get_num_threads != nullptr && num_threads_ > 1 && !single_threaded)
    shim_.torch_get_num_threads(&threads);  // torch.set_num_threads may have lowered it
  core.limit_workers(single_threaded || threads == 0 ? 1 : static_cast<int32_t>(threads) < num_threads_ ? static_cast<int32_t>(threads)
                                                                                                        : num_threads_);
  const bool listens = shim_.aoti_record_function_start != nullptr && ((shim_.has_global_callbacks != nullptr && shim_.has_global_callbacks()) ||
                                                                       (shim_.has_thread_local_callbacks != nullptr && shim_.has_thread_local_callbacks()));
  core.frame().countdown = listens ? 1 : INT64_MAX;
  return core.execute(err);
}

sealift_status Container::run(TensorHandle *inputs, size_t num_inputs, TensorHandle *outputs, size_t num_outputs, bool single_threaded, ErrorText err) {
  for (size_t i = 0; i < num_outputs; ++i) outputs[i] = nullptr;
  sealift_status status = SEALIFT_OK;
  if (num_inputs != static_cast<size_t>(api_->num_inputs) || num_outputs != static_cast<size_t>(api_->num_outputs)) {
    status = fail(err, SEALIFT_ERROR_INPUT_COUNT,
                  "%zu inputs and room for %zu outputs given, model '%s' takes %d and gives %d; help: `sealift inspect` lists them", num_inputs,
                  num_outputs, api_->name, static_cast<int>(api_->num_inputs), static_cast<int>(api_->num_outputs));
  } else {
    const bool serial = api_->num_states > 0;
    if (serial) pthread_mutex_lock(&states_);
    Runner *runner = take_runner(err);
    status = runner == nullptr ? SEALIFT_ERROR_MEMORY : run_taken(*runner, inputs, outputs, single_threaded, err);
    if (runner != nullptr) give_runner(runner);
    if (serial) pthread_mutex_unlock(&states_);
  }
  for (size_t i = 0; i < num_inputs; ++i) {
    if (inputs[i] != nullptr) shim_.aoti_torch_delete_tensor_object(inputs[i]);
    inputs[i] = nullptr;
  }
  if (status != SEALIFT_OK) {
    for (size_t i = 0; i < num_outputs; ++i) {
      if (outputs[i] != nullptr) shim_.aoti_torch_delete_tensor_object(outputs[i]);
      outputs[i] = nullptr;
    }
  }
  return status;
}

// ---- record points: torch.profiler sees every kernel by its name ---------------------------------------------------------

uint64_t Container::record_begin(sealift_frame *frame, int32_t kernel) {
  Runner &runner = *static_cast<Runner *>(frame->host_context);
  frame->countdown = 1;
  runner.record = nullptr;
  runner.container->shim_.aoti_record_function_start(runner.container->api_->kernels[kernel].name, nullptr, nullptr, 0, &runner.record);
  return runner.record != nullptr;
}

void Container::record_end(sealift_frame *frame, int32_t, uint64_t token) {
  Runner &runner = *static_cast<Runner *>(frame->host_context);
  if (token != 0) runner.container->shim_.aoti_record_function_end(runner.record);
}

}  // namespace sealift::runtime
