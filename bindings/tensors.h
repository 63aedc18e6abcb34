/* Python tensors as DLTensors, without copies: NumPy through its C API, torch (and whoever offers it) through DLPack's C exchange API, the
 * rest through __dlpack__. Nothing here imports torch. Every function wants the GIL. */
#pragma once
#include <Python.h>

#include "sealift.h"

enum class Kind { kNumpy,
                  kExchange,
                  kDlpack };

/* One tensor of a call. `tensor.shape` and `.strides` point into the Python object or into this struct: it must not move. */
struct Borrowed {
  DLTensor tensor;
  int64_t strides[16];
  PyObject *owner = nullptr;                   /* a reference to drop after the run, or NULL */
  DLManagedTensorVersioned *managed = nullptr; /* likewise */
  DLManagedTensor *legacy = nullptr;

  Borrowed() = default;
  Borrowed(const Borrowed &) = delete;
  ~Borrowed() {
    if (owner) Py_DECREF(owner);
    if (managed && managed->deleter) managed->deleter(managed);
    if (legacy && legacy->deleter) legacy->deleter(legacy);
  }
};

/* Which way `object` is read; `api` is set for kExchange. Never fails. */
Kind kind_of(PyObject *object, const DLPackExchangeAPI **api);

/* False with a Python exception set. `name` and `what` ("input", "output") are for messages; an output must be writable. */
bool borrow(PyObject *object, Kind kind, const DLPackExchangeAPI *api, const char *what, const char *name, Borrowed *out);

/* NumPy's number for a dtype, -1 where it has none (bfloat16). */
int numpy_type(DLDataType dtype);

/* A new array, uninitialised, row-major, with `tensor` describing it; NULL with an exception set. */
PyObject *new_numpy(int type, int rank, const int64_t *shape, DLDataType dtype, DLTensor *tensor);

/* Takes `tensor` over, on failure too. */
PyObject *numpy_from_managed(DLManagedTensorVersioned *tensor, const char *name);
PyObject *exchange_from_managed(DLManagedTensorVersioned *tensor, const DLPackExchangeAPI *api);

/* Raises the class that sealift.errors has for `code`; always returns false. */
bool raise_code(const char *code, const char *message);

bool init_numpy();
