#include "context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check_inputs.h"
#include "dtype.h"
#include "model_table.h"
#include "pack_layout.h"
#include "strided_copy.h"
#include "thread_pool.h"

namespace sealift::runtime {

namespace {

constexpr int64_t ALIGN = 64;           // bytes: a cache line, an AVX-512 register
constexpr int64_t HUGE_PAGE = 2 << 20;  // bytes; blocks of at least two are offered to the kernel as huge pages (TLB misses cost big GEMMs 10 %)

int64_t round_up(int64_t bytes) { return (bytes + ALIGN - 1) & -ALIGN; }

char *data_of(const DLTensor &tensor) { return static_cast<char *>(tensor.data) + tensor.byte_offset; }

// Strides of a size 1 mean nothing; NULL strides are row-major (DLPack before 1.2).
bool has_strides(const DLTensor &tensor, const int64_t *expected) {
  if (tensor.strides == nullptr) {
    int64_t stride = 1;
    for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
      if (tensor.shape[d] != 1 && stride != expected[d]) return false;
      stride *= tensor.shape[d];
    }
    return true;
  }
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.strides[d] != expected[d] && tensor.shape[d] != 1) return false;
  }
  return true;
}

// The tensor's strides, `buffer` where it has none.
const int64_t *strides_of(const DLTensor &tensor, int64_t *buffer) {
  if (tensor.strides != nullptr) return tensor.strides;
  int64_t stride = 1;
  for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
    buffer[d] = stride;
    stride *= tensor.shape[d];
  }
  return buffer;
}

bool is_aligned(const void *data, int32_t align_bytes) { return (reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(align_bytes - 1)) == 0; }

struct Range {
  uintptr_t begin, end;
};

// The bytes between a tensor's first and last element. The tensor is not empty.
Range range_of(const DLTensor &tensor, int32_t element_bytes) {
  int64_t buffer[SEALIFT_MAX_RANK], low = 0, high = 0;
  const int64_t *strides = strides_of(tensor, buffer);
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    const int64_t reach = (tensor.shape[d] - 1) * strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const uintptr_t base = reinterpret_cast<uintptr_t>(data_of(tensor));
  return Range{base + static_cast<uintptr_t>(low * element_bytes), base + static_cast<uintptr_t>((high + 1) * element_bytes)};
}

bool meet(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

// Whether two indices of the tensor may be the same address: each stride must clear all that the smaller ones reach.
bool may_overlap_itself(const DLTensor &tensor, const int64_t *strides) {
  int64_t size[SEALIFT_MAX_RANK], stride[SEALIFT_MAX_RANK];
  int32_t kept = 0;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] <= 1) continue;
    const int64_t magnitude = strides[d] < 0 ? -strides[d] : strides[d];
    int32_t at = kept++;
    for (; at > 0 && stride[at - 1] > magnitude; --at) {
      size[at] = size[at - 1];
      stride[at] = stride[at - 1];
    }
    size[at] = tensor.shape[d];
    stride[at] = magnitude;
  }
  int64_t reach = 0;
  for (int32_t d = 0; d < kept; ++d) {
    if (stride[d] <= reach) return true;
    reach += (size[d] - 1) * stride[d];
  }
  return false;
}

}  // namespace

// ---- Block ---------------------------------------------------------------------------------------------------------------

Block::~Block() { free(data_); }

bool Block::reserve(int64_t bytes) {
  if (bytes <= size_bytes_) return true;
  free(data_);
  data_ = nullptr;
  size_bytes_ = 0;
  const bool huge = bytes >= 2 * HUGE_PAGE;
  void *memory = nullptr;
  if (bytes > INT64_MAX - HUGE_PAGE || posix_memalign(&memory, static_cast<size_t>(huge ? HUGE_PAGE : ALIGN), static_cast<size_t>(bytes)) != 0) return false;
  if (huge) madvise(memory, static_cast<size_t>(bytes & -HUGE_PAGE), MADV_HUGEPAGE);
  data_ = static_cast<char *>(memory);
  size_bytes_ = bytes;
  return true;
}

// ---- Context -------------------------------------------------------------------------------------------------------------

Context::~Context() { free(tables_); }

sealift_status Context::init(const sealift_model_api &api, int32_t isa, int32_t num_workers, const sealift_host &host, void *const *shared,
                             ErrorText err) {
  const size_t inputs = static_cast<size_t>(api.num_inputs), outputs = static_cast<size_t>(api.num_outputs), states = static_cast<size_t>(api.num_states);
  const size_t words = static_cast<size_t>(api.num_sizes) + (inputs + outputs) * (SEALIFT_MAX_RANK + 2) + 3 * states;
  static_assert(sizeof(void *) == sizeof(int64_t), "the tables are arrays of one word");
  tables_ = calloc(words + 1, sizeof(int64_t));
  if (tables_ == nullptr) return fail(err, SEALIFT_ERROR_MEMORY, "no memory for a context of model '%s'", api.name);
  int64_t *next = static_cast<int64_t *>(tables_);
  auto take = [&next](size_t count) {
    int64_t *taken = next;
    next += count;
    return taken;
  };
  sizes_ = take(static_cast<size_t>(api.num_sizes));
  inputs_ = reinterpret_cast<const void **>(take(inputs));
  outputs_ = reinterpret_cast<void **>(take(outputs));
  input_strides_ = take(inputs * SEALIFT_MAX_RANK);
  output_strides_ = take(outputs * SEALIFT_MAX_RANK);
  input_bytes_ = take(inputs);
  output_bytes_ = take(outputs);
  states_ = reinterpret_cast<void **>(take(states));
  state_bytes_ = take(states);
  owns_state_ = reinterpret_cast<bool *>(take(states));

  int64_t total = 0;
  for (size_t i = 0; i < states; ++i) {
    const sealift_state_spec &state = api.states[i];
    state_bytes_[i] = row_major_bytes(api.constants[api.weights[state.initial_weight].constant]);
    owns_state_[i] = shared == nullptr || shared[i] == nullptr;
    if (owns_state_[i] && __builtin_add_overflow(total, round_up(state_bytes_[i] + 1), &total)) total = INT64_MAX;
  }
  if (!state_memory_.reserve(total)) return fail(err, SEALIFT_ERROR_MEMORY, "no memory for the %" PRId64 " bytes of state of model '%s'", total, api.name);
  char *state_data = state_memory_.data();
  for (size_t i = 0; i < states; ++i) {
    states_[i] = owns_state_[i] ? state_data : shared[i];
    if (!owns_state_[i]) continue;
    state_data += round_up(state_bytes_[i] + 1);
  }

  api_ = &api;
  changed_ = changed_inputs(api);
  run_ = api.run[isa];
  num_workers_ = num_workers;
  frame_.host = &host;
  frame_.host_context = this;
  frame_.sizes = sizes_;
  frame_.inputs = inputs_;
  frame_.outputs = outputs_;
  frame_.states = states_;
  frame_.num_workers = num_workers;
  frame_.error_kernel = -1;
  frame_.countdown = INT64_MAX;
  return SEALIFT_OK;
}

void Context::reset_states() {
  for (int32_t i = 0; i < api_->num_states; ++i) {
    if (owns_state_[i]) memcpy(states_[i], frame_.weights[api_->states[i].initial_weight], static_cast<size_t>(state_bytes_[i]));
  }
}

void Context::copy_states(const Context &from) {
  for (int32_t i = 0; i < api_->num_states; ++i) {
    if (owns_state_[i]) memcpy(states_[i], from.states_[i], static_cast<size_t>(state_bytes_[i]));
  }
}

void Context::output_shape(int32_t output, int64_t *shape) const {
  const sealift_tensor_spec &spec = api_->outputs[output];
  for (int32_t d = 0; d < spec.rank; ++d) shape[d] = sizes_[spec.shape[d]];
}

// Everything that follows from the sizes alone.
sealift_status Context::resize(ErrorText err) {
  auto lay_out = [this](const sealift_tensor_spec &spec, int64_t *strides, int64_t *bytes) {
    int64_t stride = 1, total = DTYPES[spec.dtype].bytes;
    for (int32_t at = spec.rank - 1; at >= 0; --at) {
      const int32_t d = spec.order == nullptr ? at : spec.order[at];
      const int64_t size = sizes_[spec.shape[d]];
      strides[d] = stride;
      if (size < 0 || __builtin_mul_overflow(total, size, &total) || __builtin_mul_overflow(stride, size == 0 ? 1 : size, &stride)) return false;
    }
    *bytes = total;
    return true;
  };
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    if (!lay_out(api_->inputs[i], input_strides_ + i * SEALIFT_MAX_RANK, &input_bytes_[i])) {
      return fail(err, SEALIFT_ERROR_MEMORY, "input '%s' of these sizes does not fit into memory", api_->inputs[i].name);
    }
  }
  for (int32_t i = 0; i < api_->num_outputs; ++i) {
    if (api_->outputs[i].optional != 0) continue;
    if (!lay_out(api_->outputs[i], output_strides_ + i * SEALIFT_MAX_RANK, &output_bytes_[i])) {
      return fail(err, SEALIFT_ERROR_MEMORY, "output '%s' of these sizes does not fit into memory", api_->outputs[i].name);
    }
  }
  const int64_t arena = sizes_[api_->arena_bytes_slot], scratch = sizes_[api_->scratch_bytes_slot];
  int64_t total = 0;
  if (arena < 0 || scratch < 0 || arena > INT64_MAX / 2 || scratch > INT64_MAX / 2 || __builtin_mul_overflow(round_up(scratch), num_workers_, &total) ||
      __builtin_add_overflow(total, round_up(arena), &total) || !work_.reserve(total)) {
    return fail(err, SEALIFT_ERROR_MEMORY,
                "no memory for the intermediate results of model '%s' (arena %" PRId64 " bytes, scratch %" PRId64
                " bytes for each of %d threads); help: run a smaller batch",
                api_->name, arena, scratch, static_cast<int>(num_workers_));
  }
  frame_.arena = work_.data();
  frame_.scratch = work_.data() == nullptr ? nullptr : work_.data() + round_up(arena);
  frame_.scratch_stride_bytes = round_up(scratch);
  return SEALIFT_OK;
}

sealift_status Context::measure(int32_t num_inputs, const DLTensor *inputs, ErrorText err) {
  Sizes changed;
  sealift_status status = check_inputs(*api_, num_inputs, inputs, sizes_, sizes_known_, &changed, err);
  if (status == SEALIFT_OK && changed == Sizes::CHANGED) status = resize(err);
  sizes_known_ = status == SEALIFT_OK;
  return status;
}

sealift_status Context::prepare(int32_t num_inputs, const DLTensor *inputs, ErrorText err) {
  const sealift_status status = measure(num_inputs, inputs, err);
  if (status != SEALIFT_OK) return status;
  bool direct = true;
  for (int32_t i = 0; i < num_inputs; ++i) {
    const DLTensor &input = inputs[i];
    const char *data = data_of(input);
    inputs_[i] = data;
    if (input_bytes_[i] == 0) continue;
    if (input.data == nullptr)
      return fail(err, SEALIFT_ERROR_ARGUMENT, "input '%s' has no data (NULL); help: only an empty tensor may have none", api_->inputs[i].name);
    direct = direct && has_strides(input, input_strides_ + i * SEALIFT_MAX_RANK) && is_aligned(data, DTYPES[api_->inputs[i].dtype].align_bytes);
  }
  if (changed_ != nullptr) {
    const sealift_status fits = check_changed(inputs, err);
    if (fits != SEALIFT_OK) return fits;
    given_ = inputs;
  }
  return direct ? SEALIFT_OK : stage_inputs(inputs, err);
}

// An input that the model writes into must be no other tensor of the call: a kernel that reads that one may come later.
sealift_status Context::check_changed(const DLTensor *inputs, ErrorText err) const {
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    if (changed_[i] == 0 || input_bytes_[i] == 0) continue;
    int64_t buffer[SEALIFT_MAX_RANK];
    if (may_overlap_itself(inputs[i], strides_of(inputs[i], buffer))) {
      return fail(err, SEALIFT_ERROR_OUTPUT,
                  "input '%s' is changed by the model and its strides let elements overlap; help: pass a tensor whose elements have memory of their own",
                  api_->inputs[i].name);
    }
    const Range range = range_of(inputs[i], DTYPES[api_->inputs[i].dtype].bytes);
    for (int32_t j = 0; j < api_->num_inputs; ++j) {
      if (j == i || input_bytes_[j] == 0 || !meet(range, range_of(inputs[j], DTYPES[api_->inputs[j].dtype].bytes))) continue;
      return fail(err, SEALIFT_ERROR_OUTPUT, "input '%s' is changed by the model and shares memory with input '%s'; help: give each its own",
                  api_->inputs[i].name, api_->inputs[j].name);
    }
  }
  return SEALIFT_OK;
}

// Inputs that were made row-major, and that the run changed, back to where they came from.
void Context::return_changed() const {
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    if (changed_[i] == 0 || input_bytes_[i] == 0 || inputs_[i] == data_of(given_[i])) continue;
    int64_t to[SEALIFT_MAX_RANK];
    copy_strided(data_of(given_[i]), strides_of(given_[i], to), static_cast<const char *>(inputs_[i]), input_strides_ + i * SEALIFT_MAX_RANK,
                 given_[i].shape, given_[i].ndim, DTYPES[api_->inputs[i].dtype].bytes);
  }
}

sealift_status Context::stage_inputs(const DLTensor *inputs, ErrorText err) {
  auto must_stage = [&](int32_t i) {
    return input_bytes_[i] != 0 &&
           !(has_strides(inputs[i], input_strides_ + i * SEALIFT_MAX_RANK) && is_aligned(inputs_[i], DTYPES[api_->inputs[i].dtype].align_bytes));
  };
  int64_t total = 0;
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    if (must_stage(i) && __builtin_add_overflow(total, round_up(input_bytes_[i]), &total)) total = INT64_MAX;
  }
  if (!input_staging_.reserve(total))
    return fail(err, SEALIFT_ERROR_MEMORY, "no memory to make the inputs row-major (%" PRId64 " bytes); help: pass row-major tensors", total);
  char *staged = input_staging_.data();
  for (int32_t i = 0; i < api_->num_inputs; ++i) {
    if (!must_stage(i)) continue;
    int64_t buffer[SEALIFT_MAX_RANK];
    copy_strided(staged, input_strides_ + i * SEALIFT_MAX_RANK, data_of(inputs[i]), strides_of(inputs[i], buffer), inputs[i].shape, inputs[i].ndim,
                 DTYPES[api_->inputs[i].dtype].bytes);
    inputs_[i] = staged;
    staged += round_up(input_bytes_[i]);
  }
  return SEALIFT_OK;
}

sealift_status Context::bind_outputs(int32_t num_outputs, const DLTensor *outputs, const DLTensor *inputs, ErrorText err) {
  if (num_outputs != api_->num_outputs) {
    return fail(err, SEALIFT_ERROR_INPUT_COUNT, "%d outputs given, model '%s' has %d; help: pass one tensor for each, also where it is None",
                static_cast<int>(num_outputs), api_->name, static_cast<int>(api_->num_outputs));
  }
  must_deliver_ = false;
  int64_t staged_bytes = 0;
  for (int32_t i = 0; i < num_outputs; ++i) {
    const sealift_tensor_spec &spec = api_->outputs[i];
    const DLTensor &output = outputs[i];
    outputs_[i] = nullptr;
    if (spec.optional != 0) continue;
    const int64_t *strides = output_strides_ + i * SEALIFT_MAX_RANK;
    if (!is_dtype(output.dtype, spec.dtype)) {
      char buffer[32];
      return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s' has dtype %s, the model gives %s; help: allocate it so", spec.name,
                  dtype_name(output.dtype, buffer), DTYPES[spec.dtype].name);
    }
    if (output.device.device_type != kDLCPU) return fail(err, SEALIFT_ERROR_DEVICE, "output '%s' is not on the CPU; help: allocate it there", spec.name);
    if (output.ndim != spec.rank) {
      return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s' has %d dimensions, the model gives %d; help: call without out=, or ask sealift_output_shapes in C", spec.name,
                  static_cast<int>(output.ndim), static_cast<int>(spec.rank));
    }
    for (int32_t d = 0; d < spec.rank; ++d) {
      if (output.shape[d] == sizes_[spec.shape[d]]) continue;
      const int64_t wanted = sizes_[spec.shape[d]];
      char number[32];
      snprintf(number, sizeof number, "%" PRId64, wanted);
      const bool is_formula = strcmp(number, spec.shape_text[d]) != 0;  // and no other way to write the number
      return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s': size %" PRId64 " of dimension %d must be %s%s%s%s; help: call without out=, or ask sealift_output_shapes in C",
                  spec.name, output.shape[d], static_cast<int>(d), number, is_formula ? " (" : "", is_formula ? spec.shape_text[d] : "", is_formula ? ")" : "");
    }
    if (output_bytes_[i] == 0) {
      outputs_[i] = output.data;
      continue;
    }
    if (output.data == nullptr)
      return fail(err, SEALIFT_ERROR_ARGUMENT, "output '%s' has no data (NULL); help: only an empty tensor may have none", spec.name);
    const bool dense = has_strides(output, strides);
    if (!dense) {
      int64_t buffer[SEALIFT_MAX_RANK];
      if (may_overlap_itself(output, strides_of(output, buffer))) {
        return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s': its strides let elements overlap; help: pass a tensor whose elements have memory of their own",
                    spec.name);
      }
    }
    const Range range = range_of(output, DTYPES[spec.dtype].bytes);
    bool apart = true;
    for (int32_t j = 0; j < api_->num_inputs && apart; ++j) {
      apart = input_bytes_[j] == 0 || !meet(range, range_of(inputs[j], DTYPES[api_->inputs[j].dtype].bytes));
      if (!apart && changed_ != nullptr && changed_[j] != 0) {
        return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s' shares memory with input '%s', which the model changes; help: give each its own", spec.name,
                    api_->inputs[j].name);
      }
    }
    for (int32_t j = 0; j < i; ++j) {
      if (api_->outputs[j].optional != 0 || output_bytes_[j] == 0 || !meet(range, range_of(outputs[j], DTYPES[api_->outputs[j].dtype].bytes))) continue;
      // Interleaved tensors meet without sharing an element, which is not worth telling apart; one that starts where another does shares one.
      if (data_of(outputs[j]) == data_of(output)) {
        return fail(err, SEALIFT_ERROR_OUTPUT, "outputs '%s' and '%s' are the same memory; help: give each its own", api_->outputs[j].name, spec.name);
      }
    }
    if (spec.alias_input >= 0) {
      const DLTensor &input = inputs[spec.alias_input];
      int64_t from[SEALIFT_MAX_RANK];
      if (meet(range, range_of(input, DTYPES[spec.dtype].bytes)) && !(data_of(input) == data_of(output) && has_strides(output, strides_of(input, from)))) {
        return fail(err, SEALIFT_ERROR_OUTPUT, "output '%s' is a copy of input '%s' and overlaps it; help: give it memory of its own", spec.name,
                    api_->inputs[spec.alias_input].name);
      }
      must_deliver_ = true;
      continue;
    }
    char *data = data_of(output);
    if (dense && apart && is_aligned(data, DTYPES[spec.dtype].align_bytes)) {
      outputs_[i] = data;
      continue;
    }
    must_deliver_ = true;
    if (__builtin_add_overflow(staged_bytes, round_up(output_bytes_[i]), &staged_bytes)) staged_bytes = INT64_MAX;
  }
  if (staged_bytes == 0) return SEALIFT_OK;
  if (!output_staging_.reserve(staged_bytes)) {
    return fail(err, SEALIFT_ERROR_MEMORY, "no memory to stage the outputs (%" PRId64 " bytes); help: pass outputs that are dense in the model's order",
                staged_bytes);
  }
  char *staged = output_staging_.data();
  for (int32_t i = 0; i < num_outputs; ++i) {
    const sealift_tensor_spec &spec = api_->outputs[i];
    if (spec.optional != 0 || spec.alias_input >= 0 || output_bytes_[i] == 0 || outputs_[i] != nullptr) continue;
    outputs_[i] = staged;
    staged += round_up(output_bytes_[i]);
  }
  return SEALIFT_OK;
}

sealift_status Context::execute(ErrorText err) {
  frame_.error = SEALIFT_RUN_OK;
  frame_.error_kernel = -1;
  const int32_t result = run_(&frame_);
  if (pool_ != Pool::NOT_ASKED) {
    if (pool_ == Pool::HELD) ThreadPool::of_process().release();
    pool_ = Pool::NOT_ASKED;
  }
  if (__builtin_expect(result != 0 || frame_.error != SEALIFT_RUN_OK, 0)) return run_error(err);
  if (changed_ != nullptr) return_changed();
  return SEALIFT_OK;
}

__attribute__((noinline, cold)) sealift_status Context::run_error(ErrorText err) const {
  const bool has_kernel = frame_.error_kernel >= 0 && frame_.error_kernel < api_->num_kernels;
  static const sealift_kernel_spec unknown = {-1, "unknown kernel", "", "unknown origin"};
  const sealift_kernel_spec &kernel = has_kernel ? api_->kernels[frame_.error_kernel] : unknown;
  switch (frame_.error) {
    case SEALIFT_RUN_INDEX:
      return fail(err, SEALIFT_ERROR_INDEX,
                  "index %" PRId64 " is out of range for a dimension of size %" PRId64 " in %s (%s) at %s; help: check the indices that you pass",
                  frame_.error_value, frame_.error_bound, kernel.name, kernel.ops, kernel.origin);
    case SEALIFT_RUN_ASSERT:
      return fail(err, SEALIFT_ERROR_ASSERT, "an assertion of the model failed in %s (%s) at %s; help: the inputs break what the model asserts there",
                  kernel.name, kernel.ops, kernel.origin);
    case SEALIFT_RUN_DIVIDE:
      return fail(err, SEALIFT_ERROR_DIVIDE, "integer division by zero in %s (%s) at %s; help: eager PyTorch raises here too", kernel.name, kernel.ops,
                  kernel.origin);
    default:
      return fail(err, SEALIFT_ERROR_ASSERT, "the model failed with error %d in %s (%s) at %s; help: please report this", static_cast<int>(frame_.error),
                  kernel.name, kernel.ops, kernel.origin);
  }
}

void Context::deliver_outputs(const DLTensor *outputs, const DLTensor *inputs) {
  if (!must_deliver_) return;
  // Aliases first: their inputs may share memory with an output that is staged.
  for (int32_t i = 0; i < api_->num_outputs; ++i) {
    const sealift_tensor_spec &spec = api_->outputs[i];
    if (spec.optional != 0 || spec.alias_input < 0 || output_bytes_[i] == 0) continue;
    const DLTensor &input = inputs[spec.alias_input], &output = outputs[i];
    int64_t from[SEALIFT_MAX_RANK], to[SEALIFT_MAX_RANK];
    const int64_t *source = strides_of(input, from), *target = strides_of(output, to);
    if (data_of(input) == data_of(output)) continue;
    copy_strided(data_of(output), target, data_of(input), source, output.shape, output.ndim, DTYPES[spec.dtype].bytes);
  }
  for (int32_t i = 0; i < api_->num_outputs; ++i) {
    const sealift_tensor_spec &spec = api_->outputs[i];
    if (spec.optional != 0 || spec.alias_input >= 0 || output_bytes_[i] == 0 || outputs_[i] == data_of(outputs[i])) continue;
    int64_t to[SEALIFT_MAX_RANK];
    copy_strided(data_of(outputs[i]), strides_of(outputs[i], to), static_cast<const char *>(outputs_[i]), output_strides_ + i * SEALIFT_MAX_RANK,
                 outputs[i].shape, outputs[i].ndim, DTYPES[spec.dtype].bytes);
  }
}

void Context::copy_alias(int32_t output, const DLTensor *inputs, void *data) const {
  const sealift_tensor_spec &spec = api_->outputs[output];
  if (output_bytes_[output] == 0) return;
  const DLTensor &input = inputs[spec.alias_input];
  int64_t from[SEALIFT_MAX_RANK];
  copy_strided(static_cast<char *>(data), output_strides(output), data_of(input), strides_of(input, from), input.shape, input.ndim, DTYPES[spec.dtype].bytes);
}

void Context::parallel_for(sealift_frame *frame, int64_t count, int64_t grain, sealift_task_fn fn, void *arg) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  if (frame->num_workers > 1 && count > grain) {
    Context &self = *static_cast<Context *>(frame->host_context);
    ThreadPool &pool = ThreadPool::of_process();
    if (self.pool_ == Pool::NOT_ASKED) self.pool_ = pool.try_take() ? Pool::HELD : Pool::REFUSED;
    if (self.pool_ == Pool::HELD) {
      pool.parallel_for(frame->num_workers, count, grain, fn, arg);
      return;
    }
  }
  fn(arg, 0, count, 0);
}

}  // namespace sealift::runtime
