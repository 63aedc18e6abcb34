#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include "tensors.h"

#include <numpy/arrayobject.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

bool init_numpy() { return _import_array() >= 0; }

bool raise_code(const char *code, const char *message) {
  /* A damaged file's member names may be any bytes. */
  PyObject *text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(strlen(message)), "backslashreplace");
  PyObject *module = text ? PyImport_ImportModule("sealift.errors") : nullptr;
  if (!module) Py_XDECREF(text);
  PyObject *error = module ? PyObject_CallMethod(module, "from_code", "sN", code, text) : nullptr;
  if (error) PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error)), error);
  Py_XDECREF(error);
  Py_XDECREF(module);
  return false;
}

/* ---- dtypes ---------------------------------------------------------------------------------------------------------------- */

namespace {

struct NumpyType {
  int number;
  DLDataType dtype;
};

constexpr NumpyType kNumpyTypes[] = {
    {NPY_FLOAT, {kDLFloat, 32, 1}},
    {NPY_DOUBLE, {kDLFloat, 64, 1}},
    {NPY_INT, {kDLInt, 32, 1}},
    {NPY_LONG, {kDLInt, 64, 1}},
    {NPY_BOOL, {kDLBool, 8, 1}},
    {NPY_HALF, {kDLFloat, 16, 1}},
    {NPY_BYTE, {kDLInt, 8, 1}},
    {NPY_SHORT, {kDLInt, 16, 1}},
    {NPY_UBYTE, {kDLUInt, 8, 1}},
    {NPY_CFLOAT, {kDLComplex, 64, 1}},
    {NPY_LONGLONG, {kDLInt, 64, 1}},
    {NPY_USHORT, {kDLUInt, 16, 1}},
    {NPY_UINT, {kDLUInt, 32, 1}},
    {NPY_ULONG, {kDLUInt, 64, 1}},
    {NPY_CDOUBLE, {kDLComplex, 128, 1}},
};

bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

bool dtype_of(PyArrayObject *array, DLDataType *out) {
  const int number = PyArray_TYPE(array);
  for (const NumpyType &type : kNumpyTypes)
    if (type.number == number) {
      *out = type.dtype;
      return PyArray_ISNOTSWAPPED(array);
    }
  return false;
}

bool refuse_dtype(PyArrayObject *array, const char *what, const char *name) {
  PyObject *text = PyObject_Str(reinterpret_cast<PyObject *>(PyArray_DESCR(array)));
  const char *dtype = text ? PyUnicode_AsUTF8(text) : nullptr;
  if (dtype) {
    char message[512];
    const bool half = strcmp(dtype, "bfloat16") == 0;
    snprintf(message, sizeof message, "%s '%s': a NumPy array of dtype %s; help: %s", what, name, dtype,
             half ? "NumPy has no bfloat16 of its own: pass a torch tensor (or any DLPack tensor), or float32 to a model that takes it"
                  : "use a number type in the machine's byte order, array.astype(...)");
    raise_code("E-INPUT-002", message);
  }
  Py_XDECREF(text);
  return false;
}

/* ---- borrowing --------------------------------------------------------------------------------------------------------------- */

bool borrow_numpy(PyArrayObject *array, const char *what, const char *name, bool writable, Borrowed *out) {
  DLTensor &t = out->tensor;
  if (!dtype_of(array, &t.dtype)) return refuse_dtype(array, what, name);
  if (writable && !PyArray_ISWRITEABLE(array)) {
    char message[256];
    snprintf(message, sizeof message, "%s '%s' is read-only; help: pass a writable array", what, name);
    return raise_code("E-INPUT-005", message);
  }
  t.data = PyArray_DATA(array);
  t.device = {kDLCPU, 0};
  t.ndim = PyArray_NDIM(array);
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  t.shape = reinterpret_cast<int64_t *>(PyArray_DIMS(array));
  t.strides = nullptr;
  t.byte_offset = 0;
  if (PyArray_IS_C_CONTIGUOUS(array)) return true;
  const int64_t item = PyArray_ITEMSIZE(array);
  bool whole = t.ndim <= 16;
  for (int d = 0; d < t.ndim && whole; d++) {
    out->strides[d] = PyArray_STRIDE(array, d) / item;
    whole = PyArray_STRIDE(array, d) % item == 0;
  }
  t.strides = out->strides;
  if (whole) return true;
  if (writable) {
    char message[256];
    snprintf(message, sizeof message, "%s '%s' has strides that are no multiples of its element; help: pass an ordinary array", what, name);
    return raise_code("E-INPUT-005", message);
  }
  out->owner = PyArray_NewCopy(array, NPY_CORDER); /* a field of a structured array: rare, and DLPack cannot say it */
  if (!out->owner) return false;
  t.data = PyArray_DATA(reinterpret_cast<PyArrayObject *>(out->owner));
  t.shape = reinterpret_cast<int64_t *>(PyArray_DIMS(reinterpret_cast<PyArrayObject *>(out->owner)));
  t.strides = nullptr;
  return true;
}

bool refuse_object(PyObject *object, const char *what, const char *name) {
  char message[512];
  snprintf(message, sizeof message, "%s '%s' is a %s, not a tensor; help: pass a NumPy array, a torch tensor or anything with __dlpack__", what,
           name, Py_TYPE(object)->tp_name);
  return raise_code("E-INPUT-006", message);
}

/* A torch tensor that is no plain memory (sparse, meta, quantized, nested): torch's reason, its first line, as ours. */
bool refuse_tensor(PyObject *object, const char *what, const char *name) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *text = value ? PyObject_Str(value) : nullptr;
  const char *reason = text ? PyUnicode_AsUTF8(text) : nullptr;
  if (!reason) PyErr_Clear();
  const int length = reason ? static_cast<int>(strcspn(reason, "\n")) : 0;
  PyObject *device = PyObject_GetAttrString(object, "device"), *kind = device ? PyObject_GetAttrString(device, "type") : nullptr;
  const char *place = kind && PyUnicode_Check(kind) ? PyUnicode_AsUTF8(kind) : nullptr;
  PyErr_Clear();
  char message[512];
  const bool elsewhere = place && strcmp(place, "cpu") != 0;
  const bool is_meta = elsewhere && strcmp(place, "meta") == 0;
  if (elsewhere)
    snprintf(message, sizeof message, "%s '%s' is on %.40s; help: %s", what, name, place,
             is_meta ? "a meta tensor has no values, pass one that has" : "pass x.cpu()");
  else
    snprintf(message, sizeof message, "%s '%s' is a %s without memory of its own (%.*s); help: pass an ordinary tensor: x.to_dense(), x.dequantize()",
             what, name, Py_TYPE(object)->tp_name, length < 200 ? length : 200, reason ? reason : "");
  Py_XDECREF(kind);
  Py_XDECREF(device);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return raise_code(elsewhere ? "E-INPUT-004" : "E-INPUT-006", message);
}

/* A negation or conjugation that torch has not carried out yet is not in the memory that DLPack shows. */
bool is_lazy(PyObject *object, const DLTensor &tensor) {
  static PyObject *is_neg = PyUnicode_InternFromString("is_neg"), *is_conj = PyUnicode_InternFromString("is_conj");
  const bool is_complex = tensor.dtype.code == kDLComplex;
  if (tensor.dtype.code != kDLFloat && !is_complex) return false;
  for (PyObject *method : {is_neg, is_conj}) {
    if (method == is_conj && !is_complex) continue;
    PyObject *answer = PyObject_CallMethodNoArgs(object, method);
    if (!answer) PyErr_Clear(); /* not torch's */
    const bool yes = answer == Py_True;
    Py_XDECREF(answer);
    if (yes) return true;
  }
  return false;
}

bool refuse_lazy(const char *what, const char *name) {
  char message[256];
  snprintf(message, sizeof message, "%s '%s' is a view that torch negates or conjugates when it is read; help: pass x.resolve_neg().resolve_conj()", what, name);
  return raise_code("E-INPUT-006", message);
}

/* A masked array's mask would be dropped in silence. */
bool is_masked(PyObject *array) {
  static PyObject *type = nullptr;
  if (PyArray_CheckExact(array)) return false;
  if (!type) {
    PyObject *module = PyImport_ImportModule("numpy.ma");
    type = module ? PyObject_GetAttrString(module, "MaskedArray") : nullptr;
    Py_XDECREF(module);
    if (!type) PyErr_Clear();
  }
  return type && PyObject_IsInstance(array, type) == 1;
}

bool refuse_masked(const char *what, const char *name) {
  char message[256];
  snprintf(message, sizeof message, "%s '%s' is a masked array, whose mask a model does not know; help: pass x.filled(value), and the mask as an input of its own", what, name);
  return raise_code("E-INPUT-006", message);
}

bool borrow_capsule(PyObject *object, const char *what, const char *name, Borrowed *out) {
  static PyObject *method = PyUnicode_InternFromString("__dlpack__"), *keywords = Py_BuildValue("(s)", "max_version");
  static PyObject *version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  PyObject *function = PyObject_GetAttr(object, method);
  if (!function) {
    PyErr_Clear();
    return refuse_object(object, what, name);
  }
  PyObject *arguments[] = {version};
  PyObject *capsule = PyObject_Vectorcall(function, arguments, 0, keywords);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* made before DLPack 1.0 */
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(function);
  }
  Py_DECREF(function);
  if (!capsule) return false;
  bool ok = false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    out->managed = static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    ok = PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0;
    if (ok && out->managed->version.major != DLPACK_MAJOR_VERSION) ok = refuse_object(object, what, name);
    if (ok) out->tensor = out->managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    out->legacy = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule, "dltensor"));
    ok = PyCapsule_SetName(capsule, "used_dltensor") == 0;
    if (ok) out->tensor = out->legacy->dl_tensor;
  } else {
    refuse_object(object, what, name);
  }
  Py_DECREF(capsule);
  return ok;
}

/* Types and their exchange tables; the reference keeps a type's address from being used again. Under the GIL. */
struct KnownType {
  PyTypeObject *type;
  const DLPackExchangeAPI *api;
};
constexpr int kMaxKnownTypes = 32;
KnownType known_types[kMaxKnownTypes];
int num_known_types = 0;

const DLPackExchangeAPI *find_exchange(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__");
  const DLPackExchangeAPI *api = nullptr;
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    const auto *header = static_cast<const DLPackExchangeAPIHeader *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    while (header && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
    api = reinterpret_cast<const DLPackExchangeAPI *>(header);
  }
  PyErr_Clear();
  Py_XDECREF(capsule);
  return api;
}

}  // namespace

Kind kind_of(PyObject *object, const DLPackExchangeAPI **api) {
  *api = nullptr;
  if (PyArray_Check(object) || PyArray_IsScalar(object, Generic)) return Kind::kNumpy;
  PyTypeObject *type = Py_TYPE(object);
  for (int i = 0; i < num_known_types; i++)
    if (known_types[i].type == type) {
      *api = known_types[i].api;
      return *api ? Kind::kExchange : Kind::kDlpack;
    }
  *api = find_exchange(type);
  if (num_known_types < kMaxKnownTypes) {
    Py_INCREF(type);
    known_types[num_known_types++] = {type, *api};
  }
  return *api ? Kind::kExchange : Kind::kDlpack;
}

bool borrow(PyObject *object, Kind kind, const DLPackExchangeAPI *api, const char *what, const char *name, Borrowed *out) {
  const bool writable = what[0] == 'o';
  if (kind == Kind::kNumpy) {
    if (PyArray_Check(object) && is_masked(object)) return refuse_masked(what, name);
    if (PyArray_Check(object)) return borrow_numpy(reinterpret_cast<PyArrayObject *>(object), what, name, writable, out);
    if (writable) return refuse_object(object, what, name);
    out->owner = PyArray_FromScalar(object, nullptr);
    return out->owner && borrow_numpy(reinterpret_cast<PyArrayObject *>(out->owner), what, name, false, out);
  }
  if (kind == Kind::kDlpack) return borrow_capsule(object, what, name, out);
  if (api->dltensor_from_py_object_no_sync) {
    if (api->dltensor_from_py_object_no_sync(object, &out->tensor)) return refuse_tensor(object, what, name);
  } else {
    if (api->managed_tensor_from_py_object_no_sync(object, &out->managed)) return refuse_tensor(object, what, name);
    out->tensor = out->managed->dl_tensor;
  }
  return !is_lazy(object, out->tensor) || refuse_lazy(what, name);
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------------- */

int numpy_type(DLDataType dtype) {
  for (const NumpyType &type : kNumpyTypes)
    if (same(type.dtype, dtype)) return type.number;
  return -1;
}

PyObject *new_numpy(int type, int rank, const int64_t *shape, DLDataType dtype, DLTensor *tensor) {
  PyObject *array = PyArray_SimpleNew(rank, reinterpret_cast<npy_intp *>(const_cast<int64_t *>(shape)), type);
  if (!array) {
    if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
      PyErr_Clear();
      raise_code("E-MEMORY-001", "[E-MEMORY-001] no memory for an output; help: run smaller inputs, or raise the limit (ulimit, cgroup)");
    }
    return nullptr;
  }
  PyArrayObject *a = reinterpret_cast<PyArrayObject *>(array);
  tensor->data = PyArray_DATA(a);
  tensor->device = {kDLCPU, 0};
  tensor->ndim = rank;
  tensor->dtype = dtype;
  tensor->shape = reinterpret_cast<int64_t *>(PyArray_DIMS(a));
  tensor->strides = nullptr;
  tensor->byte_offset = 0;
  return array;
}

static void free_managed(PyObject *capsule) {
  auto *tensor = static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, "sealift_tensor"));
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

PyObject *numpy_from_managed(DLManagedTensorVersioned *tensor, const char *name) {
  const DLTensor &t = tensor->dl_tensor;
  const int type = numpy_type(t.dtype);
  if (type < 0) {
    char message[512];
    snprintf(message, sizeof message, "output '%s' is bfloat16, which NumPy does not have; help: pass torch tensors, or out= tensors of a type that has it",
             name);
    raise_code("E-INPUT-002", message);
    if (tensor->deleter) tensor->deleter(tensor);
    return nullptr;
  }
  PyObject *capsule = PyCapsule_New(tensor, "sealift_tensor", free_managed);
  if (!capsule) {
    if (tensor->deleter) tensor->deleter(tensor);
    return nullptr;
  }
  npy_intp strides[16];
  const int64_t item = t.dtype.bits / 8;
  if (t.strides)
    for (int d = 0; d < t.ndim; d++) strides[d] = t.strides[d] * item;
  PyObject *array = PyArray_New(&PyArray_Type, t.ndim, reinterpret_cast<npy_intp *>(t.shape), type, t.strides ? strides : nullptr,
                                static_cast<char *>(t.data) + t.byte_offset, 0, NPY_ARRAY_WRITEABLE, nullptr);
  if (!array) {
    Py_DECREF(capsule);
    return nullptr;
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject *>(array), capsule) < 0) { /* steals the capsule */
    Py_DECREF(array);
    return nullptr;
  }
  PyArray_UpdateFlags(reinterpret_cast<PyArrayObject *>(array), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  return array;
}

PyObject *exchange_from_managed(DLManagedTensorVersioned *tensor, const DLPackExchangeAPI *api) {
  void *object = nullptr;
  return api->managed_tensor_to_py_object_no_sync(tensor, &object) == 0 ? static_cast<PyObject *>(object) : nullptr;
}
