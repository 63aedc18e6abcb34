/* One call: flatten, borrow, run, wrap. The common case, a flat tuple of tensors, runs no Python code. */
#include <time.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "gil.h"
#include "model.h"
#include "tensors.h"

namespace {

constexpr double kReleaseAfterNs = 20000;
constexpr int kFew = 8; /* tensors that fit on the stack */

double now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

/* An array of `count`, on the stack if it is small. */
template <class T>
class Few {
 public:
  explicit Few(size_t count) : data_(count <= kFew ? few_ : nullptr) {
    if (!data_) data_ = (many_ = std::make_unique<T[]>(count)).get();
  }
  T &operator[](size_t i) { return data_[i]; }
  T *data() { return data_; }

 private:
  T few_[kFew];
  std::unique_ptr<T[]> many_;
  T *data_;
};

/* References to objects, dropped at the end. */
class Objects {
 public:
  explicit Objects(size_t count) : items_(count), count_(count) {
    for (size_t i = 0; i < count; i++) items_[i] = nullptr;
  }
  ~Objects() {
    for (size_t i = 0; i < count_; i++) Py_XDECREF(items_[i]);
  }
  PyObject *&operator[](size_t i) { return items_[i]; }
  PyObject *release(size_t i) {
    PyObject *item = items_[i];
    items_[i] = nullptr;
    return item;
  }

 private:
  Few<PyObject *> items_;
  size_t count_;
};

/* The tensors of a call, in input order; borrowed from `args`, `kwargs` or `holder`. */
bool flatten(Model &model, PyObject *self, PyObject *args, PyObject *kwargs, Few<PyObject *> &flat, PyObject **holder) {
  const Py_ssize_t given = PyTuple_GET_SIZE(args), named = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
  const size_t count = model.input_names.size();
  if (model.is_flat && static_cast<size_t>(given + named) == count) {
    bool found = true;
    for (Py_ssize_t i = 0; i < given; i++) flat[i] = PyTuple_GET_ITEM(args, i);
    for (size_t i = given; i < count && found; i++) {
      flat[i] = PyDict_GetItemWithError(kwargs, model.names[i]);
      found = flat[i] != nullptr;
    }
    if (found) return true;
    if (PyErr_Occurred()) return false;
  }
  /* Nested or wrong: Python code sorts it out. */
  PyObject *empty = kwargs ? nullptr : PyDict_New();
  if (!kwargs && !empty) return false;
  *holder = PyObject_CallMethod(self, "_flatten", "OO", args, kwargs ? kwargs : empty);
  Py_XDECREF(empty);
  if (!*holder) return false;
  if (!PyTuple_Check(*holder) || static_cast<size_t>(PyTuple_GET_SIZE(*holder)) != count) {
    char message[256];
    snprintf(message, sizeof message, "%zd inputs given, the model takes %zu; help: `sealift inspect` lists them",
             PyTuple_Check(*holder) ? PyTuple_GET_SIZE(*holder) : 0, count);
    return raise_code("E-INPUT-001", message);
  }
  for (size_t i = 0; i < count; i++) flat[i] = PyTuple_GET_ITEM(*holder, i);
  return true;
}

/* A context for one run, given back at the end. */
class Lease {
 public:
  Lease(Model &model, sealift_context *own) : model_(model), own_(own) {}
  ~Lease() {
    if (handle && !own_) model_.idle.push_back(handle);
    if (locked_) model_.state_lock.unlock(), model_.state_users--;
  }
  bool take() {
    if (own_) {
      handle = own_;
      return true;
    }
    if (model_.has_state) { /* one state, so one run at a time */
      if (model_.state_users++ == 0) {
        model_.state_lock.lock();
      } else {
        const Unlocked unlocked;
        model_.state_lock.lock();
      }
      locked_ = true;
    }
    if (!model_.idle.empty()) {
      handle = model_.idle.back();
      model_.idle.pop_back();
      return true;
    }
    char message[1024];
    const sealift_status status = sealift_context_create(model_.handle, &handle, message, sizeof message);
    return status == SEALIFT_OK || raise_status(status, message);
  }
  sealift_context *handle = nullptr;

 private:
  Model &model_;
  sealift_context *own_;
  bool locked_ = false;
};

/* Runs `work`, without the GIL where the run is long enough to be worth it. */
template <class Work>
sealift_status run_timed(Model &model, int64_t bytes, Work work) {
  const bool release = model.run_ns > kReleaseAfterNs || bytes > 2 * model.run_bytes;
  const double start = now_ns();
  PyThreadState *state = release ? PyEval_SaveThread() : nullptr;
  const sealift_status status = work();
  const double took = now_ns() - start; /* before the wait for the GIL */
  if (state) take_gil(state);
  model.run_ns = took;
  model.run_bytes = bytes;
  return status;
}

int64_t bytes_of(const DLTensor &t) {
  int64_t count = 1;
  for (int d = 0; d < t.ndim; d++) count *= t.shape[d];
  return count * ((t.dtype.bits + 7) / 8);
}

PyObject *arrange(Model &model, PyObject *self, Objects &results) {
  const size_t count = model.outputs.size();
  if (model.structure == Structure::kSingle) return results.release(0);
  PyObject *all = model.structure == Structure::kList ? PyList_New(static_cast<Py_ssize_t>(count)) : PyTuple_New(static_cast<Py_ssize_t>(count));
  if (!all) return nullptr;
  for (size_t i = 0; i < count; i++) {
    if (model.structure == Structure::kList)
      PyList_SET_ITEM(all, static_cast<Py_ssize_t>(i), results.release(i));
    else
      PyTuple_SET_ITEM(all, static_cast<Py_ssize_t>(i), results.release(i));
  }
  if (model.structure != Structure::kOther) return all;
  PyObject *built = PyObject_CallMethod(self, "_unflatten", "(O)", all);
  Py_DECREF(all);
  return built;
}

/* Whether what the run writes reaches the caller. */
bool is_own_memory(const Borrowed &borrowed, const char *name) {
  constexpr uint64_t unwritable = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED;
  if (!borrowed.managed || (borrowed.managed->flags & unwritable) == 0) return true;
  char message[256];
  snprintf(message, sizeof message, "overwritten input '%s' is read-only, or gives DLPack a copy; help: pass a tensor that can be written in place", name);
  return raise_code("E-INPUT-005", message);
}

PyObject *none() { return Py_NewRef(Py_None); }

/* out=: a tensor, or a sequence with one for each output (None where the model returns None). */
bool spread_out(Model &model, PyObject *out, Objects &results) {
  const size_t count = model.outputs.size();
  const bool is_sequence = PyTuple_Check(out) || PyList_Check(out);
  char message[256];
  if (!is_sequence && count != 1) { /* an array would be taken apart along its first dimension */
    snprintf(message, sizeof message, "out= is of type '%.80s', the model has %zu outputs; help: give a tuple of %zu arrays, in the order of the outputs", Py_TYPE(out)->tp_name, count,
             count);
    return raise_code("E-INPUT-001", message);
  }
  PyObject *items = is_sequence ? PySequence_Tuple(out) : PyTuple_Pack(1, out);
  if (!items) return false;
  const size_t given = static_cast<size_t>(PyTuple_GET_SIZE(items));
  if (given == count)
    for (size_t i = 0; i < count; i++) results[i] = Py_NewRef(PyTuple_GET_ITEM(items, i));
  Py_DECREF(items);
  if (given == count) return true;
  snprintf(message, sizeof message, "out= has %zu arrays, the model has %zu outputs; help: give a tuple of %zu, with None where the model returns None", given, count, count);
  return raise_code("E-INPUT-001", message);
}

}  // namespace

PyObject *call_model(Model &model, PyObject *self, sealift_context *context, PyObject *args, PyObject *kwargs) {
  static PyObject *out_name = PyUnicode_InternFromString("out");
  PyObject *out = nullptr, *other = nullptr;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    bool own = false; /* the model may have an input of that name */
    for (PyObject *name : model.names) own = own || name == out_name;
    out = own ? nullptr : PyDict_GetItemWithError(kwargs, out_name);
    if (!out && PyErr_Occurred()) return nullptr;
    if (out) {
      other = PyDict_Copy(kwargs);
      if (!other || PyDict_DelItem(other, out_name) < 0) {
        Py_XDECREF(other);
        return nullptr;
      }
      kwargs = other;
      if (out == Py_None) out = nullptr;
    }
  }
  struct Drop {
    PyObject *&object;
    ~Drop() { Py_XDECREF(object); }
  } drop_other{other};

  const size_t num_inputs = model.input_names.size(), num_outputs = model.outputs.size();
  Few<PyObject *> flat(num_inputs);
  PyObject *holder = nullptr;
  Drop drop_holder{holder};
  if (!flatten(model, self, args, kwargs, flat, &holder)) return nullptr;

  Few<Borrowed> inputs(num_inputs);
  Few<DLTensor> tensors(num_inputs);
  Kind kind = Kind::kNumpy;
  const DLPackExchangeAPI *api = nullptr;
  int64_t bytes = 0;
  for (size_t i = 0; i < num_inputs; i++) {
    const DLPackExchangeAPI *its_api;
    const Kind its_kind = kind_of(flat[i], &its_api);
    if (i == 0) kind = its_kind, api = its_api;
    /* What is written has to be writable: borrow() looks at the first letter. */
    const char *const what = model.changes_input[i] ? "overwritten input" : "input", *const name = model.input_names[i].c_str();
    if (!borrow(flat[i], its_kind, its_api, what, name, &inputs[i]) || (model.changes_input[i] && !is_own_memory(inputs[i], name))) return nullptr;
    tensors[i] = inputs[i].tensor;
    bytes += bytes_of(tensors[i]);
  }

  Lease lease(model, context);
  if (!lease.take()) return nullptr;
  char message[1024];
  Objects results(num_outputs);
  const int32_t ni = static_cast<int32_t>(num_inputs), no = static_cast<int32_t>(num_outputs);

  bool into = out != nullptr;
  Few<DLTensor> places(num_outputs);
  Few<Borrowed> borrowed(out ? num_outputs : 0);
  if (out) {
    if (!spread_out(model, out, results)) return nullptr;
    for (size_t i = 0; i < num_outputs; i++) {
      places[i] = DLTensor{};
      places[i].device = {kDLCPU, 0};
      if (model.outputs[i].is_none && results[i] == Py_None) continue;
      const DLPackExchangeAPI *its_api;
      const Kind its_kind = kind_of(results[i], &its_api);
      if (!borrow(results[i], its_kind, its_api, "output", model.outputs[i].name.c_str(), &borrowed[i])) return nullptr;
      places[i] = borrowed[i].tensor;
    }
  } else if (kind != Kind::kExchange && model.all_known) {
    /* A shape that an input does not have is left to the run, which says what is wrong. */
    into = true;
    for (size_t i = 0; i < num_outputs && into; i++) {
      const OutputPlan &plan = model.outputs[i];
      if (plan.is_none) {
        places[i] = DLTensor{};
        places[i].device = {kDLCPU, 0};
        results[i] = none();
        continue;
      }
      int64_t shape[16];
      const int rank = static_cast<int>(plan.shape.size());
      for (int d = 0; d < rank && into; d++) {
        const SizeSource &source = plan.shape[d];
        shape[d] = source.value;
        if (source.input >= 0) {
          into = source.dim < tensors[source.input].ndim;
          if (into) shape[d] = tensors[source.input].shape[source.dim];
          into = into && shape[d] <= source.value; /* the declared maximum: no allocation by a size that will be refused */
        }
      }
      if (!into) break;
      results[i] = new_numpy(plan.numpy_type, rank, shape, plan.dtype, &places[i]);
      if (!results[i]) return nullptr;
    }
  }
  if (into) {
    const sealift_status status =
        run_timed(model, bytes, [&] { return sealift_run_into(lease.handle, ni, tensors.data(), no, places.data(), message, sizeof message); });
    if (status != SEALIFT_OK) {
      raise_status(status, message);
      return nullptr;
    }
    return arrange(model, self, results);
  }

  Few<DLManagedTensorVersioned *> made(num_outputs);
  const sealift_status status =
      run_timed(model, bytes, [&] { return sealift_run(lease.handle, ni, tensors.data(), no, made.data(), message, sizeof message); });
  if (status != SEALIFT_OK) {
    raise_status(status, message);
    return nullptr;
  }
  bool ok = true;
  for (size_t i = 0; i < num_outputs; i++) {
    Py_XDECREF(results[i]);
    if (!made[i])
      results[i] = none();
    else if (!ok)
      results[i] = nullptr, made[i]->deleter(made[i]);
    else
      results[i] = kind == Kind::kExchange ? exchange_from_managed(made[i], api) : numpy_from_managed(made[i], model.outputs[i].name.c_str());
    ok = ok && results[i];
  }
  return ok ? arrange(model, self, results) : nullptr;
}

bool raise_status(sealift_status status, const char *message) { return raise_code(sealift_status_code(status), message); }
