#include "check_inputs.h"

#include <inttypes.h>
#include <string.h>

#include "dtype.h"
#include "model_table.h"

namespace sealift::runtime {

namespace {

#define SEALIFT_COLD __attribute__((noinline, cold))

SEALIFT_COLD sealift_status wrong_count(const sealift_model_api &api, int32_t num_inputs, ErrorText err) {
  return fail(err, SEALIFT_ERROR_INPUT_COUNT, "%d inputs given, model '%s' takes %d; help: `sealift inspect` lists them", static_cast<int>(num_inputs),
              api.name, static_cast<int>(api.num_inputs));
}

SEALIFT_COLD sealift_status wrong_kind(const sealift_tensor_spec &spec, const DLTensor &input, ErrorText err) {
  if (input.ndim > 0 && input.shape == nullptr)
    return fail(err, SEALIFT_ERROR_ARGUMENT, "input '%s' has dimensions but no shape (NULL); help: fill in the DLTensor", spec.name);
  if (input.device.device_type != kDLCPU) {
    return fail(err, SEALIFT_ERROR_DEVICE, "input '%s' is on device type %d, not on the CPU; help: copy it to the CPU first", spec.name,
                static_cast<int>(input.device.device_type));
  }
  if (!is_dtype(input.dtype, spec.dtype)) {
    char buffer[32];
    return fail(err, SEALIFT_ERROR_DTYPE, "input '%s' has dtype %s, the model takes %s; help: convert it, sealift never does so silently", spec.name,
                dtype_name(input.dtype, buffer), DTYPES[spec.dtype].name);
  }
  return fail(err, SEALIFT_ERROR_SHAPE, "input '%s' has %d dimensions, the model takes %d; help: pass a tensor of rank %d", spec.name,
              static_cast<int>(input.ndim), static_cast<int>(spec.rank), static_cast<int>(spec.rank));
}

SEALIFT_COLD sealift_status out_of_range(const sealift_model_api &api, const sealift_symbol_spec &symbol, int64_t value, ErrorText err) {
  const bool is_left_out = value < symbol.min && symbol.min <= 2;  // as compiling does where an operator gives something else than export says
  return fail(err, SEALIFT_ERROR_SHAPE,
              "input '%s': size %" PRId64 " of dimension %d (%s) is outside %" PRId64 "..%" PRId64
              "; help: export the model with a wider range for %s%s, or split the input",
              api.inputs[symbol.input].name, value, static_cast<int>(symbol.dim), symbol.name, symbol.min, symbol.max, symbol.name,
              is_left_out ? " (sizes at which x[:2] is shorter, x[1] is not there or squeeze() drops a dimension are left out; compiling warns and names the line)" : "");
}

SEALIFT_COLD sealift_status not_derived(const sealift_model_api &api, const sealift_symbol_spec &symbol, int64_t value, ErrorText err) {
  const sealift_tensor_spec &spec = api.inputs[symbol.input];
  return fail(err, SEALIFT_ERROR_SHAPE,
              "input '%s': size %" PRId64 " of dimension %d is not %s for any whole %s in %" PRId64 "..%" PRId64
              "; help: pad or cut the input to such a size",
              spec.name, value, static_cast<int>(symbol.dim), spec.shape_text[symbol.dim], symbol.name, symbol.min, symbol.max);
}

SEALIFT_COLD sealift_status wrong_size(const sealift_model_api &api, const sealift_tensor_spec &spec, int32_t dim, int64_t value, const int64_t *sizes,
                                       ErrorText err) {
  const sealift_size_slot slot = spec.shape[dim];
  const char *text = spec.shape_text[dim];
  if (slot < api.num_symbols) {
    const sealift_symbol_spec &symbol = api.symbols[slot];
    return fail(err, SEALIFT_ERROR_SHAPE,
                "input '%s': size %" PRId64 " of dimension %d differs from %s = %" PRId64
                ", set by dimension %d of input '%s'; help: both are the same size in the exported model",
                spec.name, value, static_cast<int>(dim), symbol.name, sizes[slot], static_cast<int>(symbol.dim), api.inputs[symbol.input].name);
  }
  const bool fixed = text[strspn(text, "0123456789")] == '\0';
  if (fixed) {
    return fail(err, SEALIFT_ERROR_SHAPE,
                "input '%s': size %" PRId64 " of dimension %d must be %" PRId64 "; help: the model was exported with that size fixed", spec.name, value,
                static_cast<int>(dim), sizes[slot]);
  }
  return fail(err, SEALIFT_ERROR_SHAPE,
              "input '%s': size %" PRId64 " of dimension %d must be %s = %" PRId64 "; help: it follows from the sizes of the other inputs", spec.name,
              value, static_cast<int>(dim), text, sizes[slot]);
}

}  // namespace

sealift_status check_inputs(const sealift_model_api &api, int32_t num_inputs, const DLTensor *inputs, int64_t *sizes, bool known, Sizes *changed,
                            ErrorText err) {
  if (num_inputs != api.num_inputs) return wrong_count(api, num_inputs, err);
  for (int32_t i = 0; i < num_inputs; ++i) {
    const sealift_tensor_spec &spec = api.inputs[i];
    const DLTensor &input = inputs[i];
    if (!is_dtype(input.dtype, spec.dtype) || input.ndim != spec.rank || input.device.device_type != kDLCPU || (input.shape == nullptr && input.ndim > 0)) {
      return wrong_kind(spec, input, err);
    }
  }
  bool same = known;
  for (int32_t s = 0; s < api.num_symbols; ++s) {
    const sealift_symbol_spec &symbol = api.symbols[s];
    int64_t value = inputs[symbol.input].shape[symbol.dim];
    if (symbol.scale > 1 || symbol.shift != 0) {
      const int64_t scale = symbol.scale > 1 ? symbol.scale : 1, size = value;
      value = (size - symbol.shift) / scale;
      if (value * scale + symbol.shift != size || value < symbol.min || value > symbol.max) return not_derived(api, symbol, size, err);
    }
    if (known && value == sizes[s]) continue;
    same = false;
    if (value < symbol.min || value > symbol.max) return out_of_range(api, symbol, value, err);
    sizes[s] = value;
  }
  if (!same) compute_sizes(api, sizes);
  for (int32_t i = 0; i < num_inputs; ++i) {
    const sealift_tensor_spec &spec = api.inputs[i];
    const int64_t *shape = inputs[i].shape;
    for (int32_t d = 0; d < spec.rank; ++d) {
      if (shape[d] != sizes[spec.shape[d]]) return wrong_size(api, spec, d, shape[d], sizes, err);
    }
  }
  *changed = same ? Sizes::SAME : Sizes::CHANGED;
  return SEALIFT_OK;
}

}  // namespace sealift::runtime
