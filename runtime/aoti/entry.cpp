// The symbols that PyTorch's loaders look up: torch/csrc/inductor/aoti_runtime/interface.h, as of 2.13, the calls of older loaders included.
// All return 0 or 1 (failure; AOTInductorGetLastError has the text).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "dtype.h"
#include "pack_layout.h"

#define AOTI extern "C" __attribute__((visibility("default"))) int32_t

using sealift::runtime::ConstantEntry;
using sealift::runtime::ConstantMap;
using sealift::runtime::Container;
using sealift::runtime::ErrorText;
using sealift::runtime::TensorHandle;

namespace {

__thread char last_error[1024];

ErrorText error_text() {
  last_error[0] = '\0';
  return ErrorText{last_error, sizeof last_error};
}

int32_t result(sealift_status status) { return status == SEALIFT_OK ? 0 : 1; }

// For calls whose failure PyTorch reports without a reason.
int32_t loud(sealift_status status) {
  if (status != SEALIFT_OK) fprintf(stderr, "sealift: %s\n", last_error);
  return result(status);
}

Container &of(void *container) { return *static_cast<Container *>(container); }

const sealift_constant_spec *constant_at(void *container, size_t index) {
  const sealift_model_api &api = of(container).api();
  if (index < static_cast<size_t>(api.num_constants)) return &api.constants[index];
  sealift::runtime::fail(error_text(), SEALIFT_ERROR_ARGUMENT, "the model has no constant %zu", index);
  return nullptr;
}

// The entries of a map, in an array that the caller frees.
ConstantEntry *entries_of(void *container, void *map, size_t *count) {
  const ConstantMap constants(map, of(container).shim());
  *count = 0;
  ConstantEntry *entries = static_cast<ConstantEntry *>(malloc((constants.size() + 1) * sizeof(ConstantEntry)));
  if (entries != nullptr) constants.for_each([&](const char *name, TensorHandle handle) { entries[(*count)++] = ConstantEntry{name, handle}; });
  return entries;
}

int32_t update(void *container, const ConstantEntry *entries, size_t count, bool use_inactive, bool must_be_all) {
  return loud(of(container).update_constants(entries, count, use_inactive, must_be_all, error_text()));
}

int32_t update_from_map(void *container, void *map, bool use_inactive, bool must_be_all) {
  size_t count;
  ConstantEntry *entries = entries_of(container, map, &count);
  if (entries == nullptr) return loud(sealift::runtime::fail(error_text(), SEALIFT_ERROR_MEMORY, "out of memory"));
  const int32_t failed = update(container, entries, count, use_inactive, must_be_all);
  free(entries);
  return failed;
}

int32_t create(void **container, const char *device, void *caller) {
  const ErrorText err = error_text();
  *container = nullptr;
  if (device != nullptr && strncmp(device, "cpu", 3) != 0) {
    return loud(
        sealift::runtime::fail(err, SEALIFT_ERROR_DEVICE, "the model is compiled for the CPU, not for '%s'; help: load it without a device index", device));
  }
  *container = Container::create(sealift_model_get_api(SEALIFT_MODEL_ABI_VERSION), caller, reinterpret_cast<void *>(&create), err);
  return loud(*container == nullptr ? SEALIFT_ERROR_LIBRARY : SEALIFT_OK);
}

}  // namespace

AOTI AOTInductorGetLastError(const char **message) {
  *message = last_error;
  return 0;
}

// ---- life ----------------------------------------------------------------------------------------------------------------

AOTI AOTInductorModelContainerCreateWithDevice(void **container, size_t, const char *device, const char *) {
  return create(container, device, __builtin_return_address(0));
}

AOTI AOTInductorModelContainerCreate(void **container, size_t, bool is_cpu, const char *) {
  return create(container, is_cpu ? "cpu" : "another device", __builtin_return_address(0));
}

AOTI AOTInductorModelContainerDelete(void *container) {
  Container::destroy(static_cast<Container *>(container));
  return 0;
}

// ---- what the model says about itself ------------------------------------------------------------------------------------

AOTI AOTInductorModelContainerGetNumInputs(void *container, size_t *count) {
  *count = static_cast<size_t>(of(container).api().num_inputs);
  return 0;
}

AOTI AOTInductorModelContainerGetNumOutputs(void *container, size_t *count) {
  *count = static_cast<size_t>(of(container).api().num_outputs);
  return 0;
}

AOTI AOTInductorModelContainerGetInputName(void *container, size_t index, const char **name) {
  const sealift_model_api &api = of(container).api();
  if (index >= static_cast<size_t>(api.num_inputs))
    return result(sealift::runtime::fail(error_text(), SEALIFT_ERROR_ARGUMENT, "the model has no input %zu", index));
  *name = api.inputs[index].name;
  return 0;
}

AOTI AOTInductorModelContainerGetOutputName(void *container, size_t index, const char **name) {
  const sealift_model_api &api = of(container).api();
  if (index >= static_cast<size_t>(api.num_outputs))
    return result(sealift::runtime::fail(error_text(), SEALIFT_ERROR_ARGUMENT, "the model has no output %zu", index));
  *name = api.outputs[index].name == nullptr ? "" : api.outputs[index].name;
  return 0;
}

AOTI AOTInductorModelContainerGetCallSpec(void *container, const char **in_spec, const char **out_spec) {
  *in_spec = of(container).api().in_spec;
  *out_spec = of(container).api().out_spec;
  return 0;
}

AOTI AOTInductorModelContainerGetNumConstants(void *container, size_t *count) {
  *count = static_cast<size_t>(of(container).api().num_constants);
  return 0;
}

AOTI AOTInductorModelContainerGetConstantName(void *container, size_t index, const char **name) {
  const sealift_constant_spec *constant = constant_at(container, index);
  if (constant == nullptr) return 1;
  *name = constant->name;
  return 0;
}

AOTI AOTInductorModelContainerGetConstantOriginalFQN(void *container, size_t index, const char **fqn) {
  const sealift_constant_spec *constant = constant_at(container, index);
  if (constant == nullptr) return 1;
  *fqn = constant->fqn;
  return 0;
}

AOTI AOTInductorModelContainerGetConstantDtype(void *container, size_t index, int32_t *dtype) {
  const sealift_constant_spec *constant = constant_at(container, index);
  if (constant == nullptr) return 1;
  *dtype = of(container).torch_dtype(constant->dtype);
  return 0;
}

AOTI AOTInductorModelContainerGetConstantType(void *container, size_t index, int32_t *type) {
  const sealift_constant_spec *constant = constant_at(container, index);
  if (constant == nullptr) return 1;
  *type = constant->kind + 1;  // torch counts from "unknown"
  return 0;
}

AOTI AOTInductorModelContainerGetConstantFromFolded(void *container, size_t index, bool *from_folded) {
  if (constant_at(container, index) == nullptr) return 1;
  *from_folded = false;
  return 0;
}

AOTI AOTInductorModelContainerGetConstantDataSize(void *container, size_t index, size_t *bytes) {
  const sealift_constant_spec *constant = constant_at(container, index);
  if (constant == nullptr) return 1;
  *bytes = static_cast<size_t>(sealift::runtime::row_major_bytes(*constant));
  return 0;
}

// ---- constants -----------------------------------------------------------------------------------------------------------
// "User managed" values are copied too: a library's kernels read packed weights. What the user writes into the tensors later is not seen.

AOTI AOTInductorModelContainerUpdateConstantBuffer(void *container, void *map, bool use_inactive, bool validate_full_update) {
  return update_from_map(container, map, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateConstantBufferFromCpu(void *container, void *map, bool use_inactive, bool validate_full_update) {
  return update_from_map(container, map, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateUserManagedConstantBuffer(void *container, void *map, bool use_inactive, bool validate_full_update) {
  return update_from_map(container, map, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateInactiveConstantBuffer(void *container, void *map) { return update_from_map(container, map, true, true); }

AOTI AOTInductorModelContainerUpdateConstantBufferPairs(void *container, const ConstantEntry *pairs, size_t count, bool use_inactive,
                                                        bool validate_full_update) {
  return update(container, pairs, count, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateConstantBufferFromCpuPairs(void *container, const ConstantEntry *pairs, size_t count, bool use_inactive,
                                                               bool validate_full_update) {
  return update(container, pairs, count, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void *container, const ConstantEntry *pairs, size_t count, bool use_inactive,
                                                                   bool validate_full_update) {
  return update(container, pairs, count, use_inactive, validate_full_update);
}

AOTI AOTInductorModelContainerUpdateInactiveConstantBufferPairs(void *container, const ConstantEntry *pairs, size_t count) {
  return update(container, pairs, count, true, true);
}

AOTI AOTInductorModelContainerGetConstantsBlobSize(void *container, uint64_t *bytes) {
  *bytes = of(container).api().weights_bytes;
  return 0;
}

AOTI AOTInductorModelUpdateConstantsFromBlob(void *container, const uint8_t *blob) { return loud(of(container).update_from_blob(blob, error_text())); }

AOTI AOTInductorModelContainerFreeInactiveConstantBuffer(void *container) {
  of(container).free_inactive();
  return 0;
}

AOTI AOTInductorModelContainerSwapConstantBuffer(void *container) { return loud(of(container).swap_constants(error_text())); }

// Constants are folded when the model is compiled.
AOTI AOTInductorModelContainerRunConstantFolding(void *, bool, void *, void *) { return 0; }

AOTI AOTInductorModelContainerExtractConstantsMapEntries(void *container, const ConstantEntry **entries, size_t *count, bool use_inactive) {
  return loud(of(container).extract_constants(use_inactive, entries, count, error_text()));
}

AOTI AOTInductorModelContainerExtractConstantsMap(void *container, void *map, bool use_inactive) {
  const ConstantEntry *entries;
  size_t count;
  const sealift_status status = of(container).extract_constants(use_inactive, &entries, &count, error_text());
  if (status != SEALIFT_OK) return loud(status);
  ConstantMap constants(map, of(container).shim());
  for (size_t i = 0; i < count; ++i) {
    if (!constants.insert(entries[i].name, entries[i].handle))
      return loud(sealift::runtime::fail(error_text(), SEALIFT_ERROR_LIBRARY, "this process has no libstdc++.so.6 to make a constant map with"));
  }
  return 0;
}

// ---- runs ----------------------------------------------------------------------------------------------------------------

AOTI AOTInductorModelContainerRun(void *container, TensorHandle *inputs, size_t num_inputs, TensorHandle *outputs, size_t num_outputs, void *, void *) {
  return result(of(container).run(inputs, num_inputs, outputs, num_outputs, false, error_text()));
}

AOTI AOTInductorModelContainerRunSingleThreaded(void *container, TensorHandle *inputs, size_t num_inputs, TensorHandle *outputs, size_t num_outputs, void *,
                                                void *) {
  return result(of(container).run(inputs, num_inputs, outputs, num_outputs, true, error_text()));
}
