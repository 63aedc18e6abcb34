#include "torch_shim.h"

#include <string.h>

#include "dtype.h"
#include "glibc_baseline.h"

namespace sealift::runtime {

namespace {

constexpr char PROBE[] = "aoti_torch_empty_strided";

void *find_torch(void *caller) {
  if (dlsym(RTLD_DEFAULT, PROBE) != nullptr) return RTLD_DEFAULT;
  Dl_info image;
  if (caller != nullptr && dladdr(caller, &image) != 0) {
    void *handle = dlopen(image.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    if (handle != nullptr && dlsym(handle, PROBE) != nullptr) return handle;
    if (handle != nullptr) dlclose(handle);
  }
  return dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
}

template <class Function>
bool bind(void *handle, const char *name, Function *&function) {
  void *address = dlsym(handle, name);
  memcpy(&function, &address, sizeof address);
  return address != nullptr;
}

}  // namespace

sealift_status bind_torch(TorchShim &shim, void *caller, ErrorText err) {
  void *torch = can_load_libraries() ? find_torch(caller) : reinterpret_cast<void *>(-1);
  if (torch == reinterpret_cast<void *>(-1) || (torch == nullptr && dlsym(RTLD_DEFAULT, PROBE) == nullptr)) {
    return fail(err, SEALIFT_ERROR_LIBRARY,
                "PyTorch's library is not found in this process; help: open the package with sealift_open where there is no PyTorch");
  }
  // The handle stays open: the shim points into it.
  const char *missing = nullptr;
#define REQUIRED(name) \
  if (!bind(torch, #name, shim.name)) missing = #name;
  REQUIRED(aoti_torch_device_type_cpu)
  REQUIRED(aoti_torch_layout_strided)
  REQUIRED(aoti_torch_get_dtype)
  REQUIRED(aoti_torch_get_device_type)
  REQUIRED(aoti_torch_get_layout)
  REQUIRED(aoti_torch_get_dim)
  REQUIRED(aoti_torch_get_sizes)
  REQUIRED(aoti_torch_get_strides)
  REQUIRED(aoti_torch_get_data_ptr)
  REQUIRED(aoti_torch_empty_strided)
  REQUIRED(aoti_torch_new_tensor_handle)
  REQUIRED(aoti_torch_delete_tensor_object)
#undef REQUIRED
  for (int32_t dtype = 0; dtype < NUM_DTYPES; ++dtype) {
    char name[64] = "aoti_torch_dtype_";
    strcat(name, DTYPES[dtype].name);
    int32_t (*number)();
    shim.dtypes[dtype] = bind(torch, name, number) ? number() : -1;
  }
  if (missing != nullptr) return fail(err, SEALIFT_ERROR_LIBRARY, "this PyTorch lacks %s; help: use PyTorch 2.11 or newer", missing);
  bind(torch, "torch_get_num_threads", shim.torch_get_num_threads);
  if (!bind(torch, "aoti_record_function_start", shim.aoti_record_function_start) || !bind(torch, "aoti_record_function_end", shim.aoti_record_function_end)) {
    shim.aoti_record_function_start = nullptr;
  }
  bind(torch, "_ZN2at18hasGlobalCallbacksEv", shim.has_global_callbacks);
  bind(torch, "_ZN2at23hasThreadLocalCallbacksEv", shim.has_thread_local_callbacks);
  bind(torch, "_ZN2at4_ops6is_neg4callERKNS_6TensorE", shim.is_neg);
  bind(torch, "_ZN2at4_ops7is_conj4callERKNS_6TensorE", shim.is_conj);
  // operator new from the global scope first: a program may have replaced it, and its operator delete will free what we make.
  void *cxx = dlopen("libstdc++.so.6", RTLD_NOLOAD | RTLD_LAZY);
  if (!bind(RTLD_DEFAULT, "_Znwm", shim.operator_new) && cxx != nullptr) bind(cxx, "_Znwm", shim.operator_new);
  if (!bind(RTLD_DEFAULT, "_ZSt11_Hash_bytesPKvmm", shim.hash_bytes) && cxx != nullptr) bind(cxx, "_ZSt11_Hash_bytesPKvmm", shim.hash_bytes);
  return SEALIFT_OK;
}

}  // namespace sealift::runtime
