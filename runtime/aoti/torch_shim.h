// The functions of PyTorch's C shim that the AOTInductor entry calls, looked up in the running process and never linked.
#pragma once

#include <stdint.h>

#include "status.h"

namespace sealift::runtime {

using TensorHandle = struct TensorOpaque *;  // at::Tensor *
using RecordFunctionHandle = struct RecordOpaque *;

struct TorchShim {
  // Required: every torch since 2.4 has them.
  int32_t (*aoti_torch_device_type_cpu)();
  int32_t (*aoti_torch_layout_strided)();
  int32_t (*aoti_torch_get_dtype)(TensorHandle, int32_t *);
  int32_t (*aoti_torch_get_device_type)(TensorHandle, int32_t *);
  int32_t (*aoti_torch_get_layout)(TensorHandle, int32_t *);
  int32_t (*aoti_torch_get_dim)(TensorHandle, int64_t *);
  int32_t (*aoti_torch_get_sizes)(TensorHandle, int64_t **);
  int32_t (*aoti_torch_get_strides)(TensorHandle, int64_t **);
  int32_t (*aoti_torch_get_data_ptr)(TensorHandle, void **);
  int32_t (*aoti_torch_empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, TensorHandle *);
  int32_t (*aoti_torch_new_tensor_handle)(TensorHandle, TensorHandle *);
  int32_t (*aoti_torch_delete_tensor_object)(TensorHandle);
  // Optional: NULL where this torch lacks them.
  int32_t (*torch_get_num_threads)(uint32_t *);
  int32_t (*aoti_record_function_start)(const char *, void *, const void *, uint64_t, RecordFunctionHandle *);
  int32_t (*aoti_record_function_end)(RecordFunctionHandle);
  bool (*has_global_callbacks)();  // at::hasGlobalCallbacks(), at::hasThreadLocalCallbacks(): whether a profiler listens
  bool (*has_thread_local_callbacks)();
  bool (*is_neg)(TensorHandle);  // at::_ops::is_neg::call, is_conj::call: whether torch changes the values when it reads them
  bool (*is_conj)(TensorHandle);
  // The C++ library that this torch uses, for the constant maps that cross as std::unordered_map.
  void *(*operator_new)(unsigned long);
  unsigned long (*hash_bytes)(const void *, unsigned long, unsigned long);

  int32_t dtypes[16];  // torch's number of each sealift_dtype
};

// Fills in the shim. libtorch_cpu is often loaded RTLD_LOCAL (under Python it always is), so its symbols are looked for in the global
// scope, then in the image that `caller`, an address in whoever called us, belongs to, then in a loaded libtorch_cpu.so.
sealift_status bind_torch(TorchShim &shim, void *caller, ErrorText err);

}  // namespace sealift::runtime
