/* sealift._runtime's half of sealift.observe. Events come on any thread, with or without the GIL: it is taken only for an event that a Python
 * callback is to see, and, where debug info is in use, for the first recorded event after Python changed a thread's context. */
#include "observe.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "gil.h"
#include "model.h"
#include "sealift_observe.h"
#include "trace_json.h"

namespace nb = nanobind;

namespace {

// ---- the interpreter's end -------------------------------------------------------------------------------------------------

std::atomic<bool> python_is_alive{true};
std::atomic<int> on_their_way{0};  // threads between the look at it and the GIL

// The GIL for a callback, or not if the interpreter is ending: a thread that asked for it then would never come back.
class Interpreter {
 public:
  Interpreter() {
    on_their_way.fetch_add(1, std::memory_order_seq_cst);
    if (python_is_alive.load(std::memory_order_seq_cst)) {
      state_ = ensure_gil();
      is_ours_ = true;
    }
  }
  ~Interpreter() {
    if (is_ours_) PyGILState_Release(state_);
    on_their_way.fetch_sub(1, std::memory_order_release);
  }
  Interpreter(const Interpreter &) = delete;
  Interpreter &operator=(const Interpreter &) = delete;
  explicit operator bool() const { return is_ours_; }

 private:
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
  bool is_ours_ = false;
};

/* Called once by Python's atexit. Waits for callbacks that are under way, at most `seconds`; 1 if none is left. */
bool end_callbacks(double seconds) {
  python_is_alive.store(false, std::memory_order_seq_cst);
  sealift_set_info_provider(nullptr);
  sealift_set_api_usage_handler(nullptr, nullptr);
  const Unlocked unlocked;
  const timespec pause{0, 1000000};
  bool any = false;
  for (int i = 0; on_their_way.load(std::memory_order_seq_cst) != 0; ++i) {
    if (i > seconds * 1000) return false;
    any = true;
    nanosleep(&pause, nullptr);
  }
  // Threads that were in a callback still have to leave their operators, for which they need the GIL once more.
  for (int i = 0; any && i < 50; ++i) nanosleep(&pause, nullptr);
  return true;
}

// ---- text ------------------------------------------------------------------------------------------------------------------

/* Names come from whoever registered an operator, in whatever bytes: an odd one must not take a snapshot, or a callback, down. */
nb::str to_text(const char *bytes) {
  PyObject *made = PyUnicode_DecodeUTF8(bytes, static_cast<Py_ssize_t>(strlen(bytes)), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(made);
}

// ---- debug info ------------------------------------------------------------------------------------------------------------

struct Info {
  sealift_info *handle;
  explicit Info(sealift_info *owned) : handle(owned) {}
  ~Info() { sealift_info_release(handle); }
  Info(const Info &) = delete;
  Info &operator=(const Info &) = delete;
};

nb::dict labels_of(const sealift_info *info) {
  nb::dict labels;
  for (int32_t i = 0; i < sealift_info_count(info); ++i) {
    const sealift_label label = sealift_info_label(info, i);
    labels[to_text(label.key)] = to_text(label.value);
  }
  return labels;
}

PyObject *context_var = nullptr;  // of an Info or None

// What the calling thread's context held when it was last looked at; good until Python enters or leaves a context on this thread.
struct Seen {
  uint64_t version = 0;
  bool is_known = false, is_set = false;
  sealift_info *info = nullptr;
  ~Seen() { sealift_info_release(info); }
  void set(uint64_t now, bool found, const sealift_info *value) {
    sealift_info *before = info;
    info = sealift_info_retain(value);
    version = now;
    is_known = true;
    is_set = found;
    sealift_info_release(before);
  }
};
thread_local Seen seen;

// The thread's own state; only the thread itself changes its context, so no lock is needed to look at it.
PyThreadState *own_state() { return PyGILState_GetThisThreadState(); }

void look_at_context(uint64_t version) {
  PyObject *value = nullptr;
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  const bool found = PyContextVar_Get(context_var, nullptr, &value) == 0 && value != nullptr;
  if (!found) PyErr_Clear();
  Info *info = nullptr;
  if (found && value != Py_None && nb::isinstance<Info>(nb::handle(value))) info = nb::inst_ptr<Info>(nb::handle(value));
  seen.set(version, found, info != nullptr ? info->handle : nullptr);
  Py_XDECREF(value);
  PyErr_Restore(type, error, trace);
}

sealift_info *info_of_context(int32_t *is_set) {
  *is_set = 0;
  const PyThreadState *state = own_state();
  if (state == nullptr || state->context == nullptr) return nullptr;
  if (!seen.is_known || seen.version != state->context_ver) {
    const Interpreter interpreter;
    if (!interpreter) return nullptr;
    look_at_context(state->context_ver);
  }
  *is_set = seen.is_set ? 1 : 0;
  return sealift_info_retain(seen.info);
}

nb::object wrap_info(sealift_info *owned) { return owned == nullptr ? nb::none() : nb::cast(new Info(owned), nb::rv_policy::take_ownership); }

/* After the context variable was set: makes it the thread's for those who cannot see contexts. */
void enter_info(nb::handle value) {
  const Info *info = value.is_none() ? nullptr : nb::cast<Info *>(value);
  const PyThreadState *state = own_state();
  if (state != nullptr) seen.set(state->context_ver, true, info != nullptr ? info->handle : nullptr);
  sealift_info_release(sealift_info_exchange(info != nullptr ? info->handle : nullptr));
}

// ---- observers -------------------------------------------------------------------------------------------------------------

struct TensorMeta {
  std::vector<int64_t> shape, strides;
  std::string dtype, device;
  bool is_strided = true;
};

struct Record {
  std::string name, overload, source, scope, model_name, ops, origin;
  int32_t kernel_id = -1;
  int64_t sequence = -1;
  uint64_t thread_id = 0, forward_thread_id = 0, start_ns = 0, dur_ns = 0, weight = 1;
  nb::object inputs, debug_info, entered;
};

nb::object value_object(const sealift_value &value) {
  switch (value.kind) {
    case SEALIFT_VALUE_TENSOR: {
      auto *meta = new TensorMeta;
      meta->shape.assign(value.shape, value.shape + value.count);
      meta->is_strided = value.strides != nullptr;
      if (meta->is_strided) meta->strides.assign(value.strides, value.strides + value.count);
      meta->dtype = value.text;
      meta->device = value.device;
      return nb::cast(meta, nb::rv_policy::take_ownership);
    }
    case SEALIFT_VALUE_INT: return nb::int_(value.integer);
    case SEALIFT_VALUE_FLOAT: return nb::float_(value.number);
    case SEALIFT_VALUE_BOOL: return nb::bool_(value.integer != 0);
    case SEALIFT_VALUE_STRING: return to_text(value.text);
    case SEALIFT_VALUE_LIST: {
      nb::list items;
      for (int32_t i = 0; i < value.count; ++i) items.append(value_object(value.items[i]));
      return std::move(items);
    }
    case SEALIFT_VALUE_OTHER: return nb::str((std::string("<") + value.text + ">").c_str());
    default: return nb::none();
  }
}

struct Listener {
  PyObject *on_enter, *on_exit;  // NULL: none
  PyObject *failed;              // called with the exception when one of them raised
  std::atomic<bool> is_dead{false};
};

// Takes the exception that is set; the listener is not called again. What interrupts the program goes on to it.
void fail(Listener &listener) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();
  } else if (!listener.is_dead.exchange(true)) {
    PyObject *result = PyObject_CallOneArg(listener.failed, value);
    if (result == nullptr) PyErr_WriteUnraisable(listener.failed);
    Py_XDECREF(result);
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

// An operator may run while an exception is on its way (in a finally block): a callback must leave it as it was.
class KeptError {
 public:
  KeptError() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~KeptError() { PyErr_Restore(type_, value_, trace_); }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

void *on_enter(void *user, const sealift_observed *event) {
  Listener &listener = *static_cast<Listener *>(user);
  if (listener.is_dead.load(std::memory_order_relaxed)) return nullptr;
  const Interpreter interpreter;
  if (!interpreter) return nullptr;
  const KeptError kept;
  PyObject *self = nullptr;
  try {
    auto *record = new Record;
    nb::object object = nb::cast(record, nb::rv_policy::take_ownership);
    record->name = event->name;
    record->overload = event->overload;
    record->source = event->source == SEALIFT_SOURCE_KERNEL ? "sealift" : "torch";
    record->scope = sealift_scope_name(static_cast<sealift_scope>(event->scope));
    record->model_name = event->model_name;
    record->ops = event->ops;
    record->origin = event->origin;
    record->kernel_id = event->kernel_id;
    record->sequence = event->sequence;
    record->thread_id = event->thread_id;
    record->forward_thread_id = event->forward_thread_id;
    record->start_ns = event->start_ns;
    record->weight = event->weight;
    record->debug_info = labels_of(event->info);
    record->entered = nb::none();
    record->inputs = nb::none();
    if (event->num_inputs >= 0) {
      nb::list inputs;
      for (int32_t i = 0; i < event->num_inputs; ++i) inputs.append(value_object(event->inputs[i]));
      record->inputs = nb::tuple(inputs);
    }
    if (listener.on_enter != nullptr) {
      PyObject *result = PyObject_CallOneArg(listener.on_enter, object.ptr());
      if (result == nullptr) {
        fail(listener);
        return nullptr;
      }
      record->entered = nb::steal(result);
    }
    self = object.release().ptr();
  } catch (nb::python_error &error) {
    error.restore();
    fail(listener);
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    fail(listener);
  }
  return self;
}

void on_exit(void *user, void *entered, const sealift_observed *event) {
  auto *self = static_cast<PyObject *>(entered);
  Listener &listener = *static_cast<Listener *>(user);
  if (self == nullptr) return;
  const Interpreter interpreter;
  if (!interpreter) return;
  const KeptError kept;
  Record &record = *nb::inst_ptr<Record>(nb::handle(self));
  record.start_ns = event->start_ns;
  record.dur_ns = event->dur_ns;
  if (listener.on_exit != nullptr && !listener.is_dead.load(std::memory_order_relaxed)) {
    PyObject *result = PyObject_CallOneArg(listener.on_exit, self);
    if (result == nullptr) fail(listener);
    Py_XDECREF(result);
  }
  Py_DECREF(self);
}

void release_listener(void *user) {
  auto *listener = static_cast<Listener *>(user);
  const Interpreter interpreter;
  if (!interpreter) return;
  Py_XDECREF(listener->on_enter);
  Py_XDECREF(listener->on_exit);
  Py_XDECREF(listener->failed);
  delete listener;
}

PyObject *callable(nb::handle object) { return object.is_none() ? nullptr : Py_NewRef(object.ptr()); }

uint64_t add_observer(nb::handle enter, nb::handle exit, nb::handle failed, double probability, uint32_t scopes, bool needs_inputs, bool this_thread_only) {
  auto *listener = new Listener{callable(enter), callable(exit), callable(failed)};
  const sealift_observer observer{sizeof(sealift_observer), on_enter, on_exit, release_listener, listener, probability, scopes, needs_inputs, this_thread_only};
  uint64_t id = 0;
  char message[512];
  sealift_status status;
  {
    const Unlocked unlocked;  // whoever holds the registry may be waiting for a callback, which waits for the GIL
    status = sealift_observer_add(&observer, &id, message, sizeof message);
  }
  if (status == SEALIFT_OK) return id;
  release_listener(listener);
  raise_status(status, message);
  throw nb::python_error();
}

int remove_observer(uint64_t id) {
  const Unlocked unlocked;
  return sealift_observer_remove(id);
}

// ---- the recorder ----------------------------------------------------------------------------------------------------------

template <class Call>
void unlocked(Call call) {  // raises what it returns as an error
  char message[512];
  sealift_status status;
  {
    const Unlocked unlocked;
    status = call(message, sizeof message);
  }
  if (status == SEALIFT_OK) return;
  raise_status(status, message);
  throw nb::python_error();
}

void start_recorder(double probability, double duty_cycle, double budget, double burst_duty_cycle, double host_probability, uint32_t scopes, bool shapes,
                    const std::string &labels, int32_t max_series, int32_t every) {
  sealift_recorder_options options;
  sealift_recorder_options_init(&options);
  options.sampling_probability = probability;
  options.duty_cycle = duty_cycle;
  options.budget = budget;
  options.burst_duty_cycle = burst_duty_cycle;
  options.host_probability = host_probability;
  options.scopes = scopes;
  options.shapes = shapes;
  options.labels = labels.c_str();
  options.max_series = max_series;
  options.every = every;
  unlocked([&](char *err, size_t size) { return sealift_recorder_start(&options, err, size); });
}

void adjust_recorder(double probability, double duty_cycle, double budget, double burst_duty_cycle, double host_probability, int32_t records) {
  const sealift_recorder_rates rates{sizeof(sealift_recorder_rates), probability, duty_cycle, budget, burst_duty_cycle, host_probability, records};
  unlocked([&](char *err, size_t size) { return sealift_recorder_adjust(&rates, err, size); });
}

void begin_trace(uint64_t max_calls) {
  unlocked([&](char *err, size_t size) { return sealift_recorder_trace_begin(max_calls, err, size); });
}

/* (calls, lost) */
nb::tuple end_trace() {
  uint64_t calls = 0, lost = 0;
  {
    const Unlocked unlocked;
    calls = sealift_recorder_trace_end(&lost);
  }
  return nb::make_tuple(calls, lost);
}

nb::bytes traced(uint64_t first, uint64_t count, int64_t pid, uint64_t base_ns) {
  std::string text;
  {
    const Unlocked unlocked;
    text = trace_json(first, count, pid, base_ns);
  }
  return nb::bytes(text.data(), text.size());
}

nb::dict recorder_state() {
  sealift_recorder_state state;
  {
    const Unlocked unlocked;
    sealift_recorder_get_state(&state);
  }
  nb::dict out;
  out["running"] = state.running != 0;
  out["start_unix_ns"] = state.start_unix_ns;
  out["probability"] = state.probability;
  out["duty_cycle"] = state.duty_cycle;
  out["burst_duty_cycle"] = state.burst_duty_cycle;
  out["overhead"] = state.overhead;
  out["samples"] = state.samples;
  out["overflow"] = state.overflow;
  out["dropped"] = state.dropped;
  out["forks"] = state.fork_count;
  out["tables"] = state.num_tables;
  out["records"] = state.rates.records != 0;
  out["rates"] = nb::make_tuple(state.rates.sampling_probability, state.rates.duty_cycle, state.rates.budget, state.rates.burst_duty_cycle, state.rates.host_probability);
  return out;
}

// What visits show, copied without the GIL. Python objects are made afterwards: making one may collect garbage, whose finalizers may let other
// threads run, or ask for a snapshot themselves, while the visit holds its lock.
const char *source_name(int32_t source) { return source == SEALIFT_SOURCE_KERNEL ? "sealift" : "torch"; }

struct SeriesRow {
  sealift_series numbers;  // its pointers are not used
  std::string name, model_id, shapes, origin;
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<std::pair<int32_t, uint64_t>> buckets;

  explicit SeriesRow(const sealift_series &series) : numbers(series), name(series.name), model_id(series.model_id), shapes(series.shapes), origin(series.origin) {
    for (int32_t i = 0; i < series.num_labels; ++i) labels.emplace_back(series.labels[i].key, series.labels[i].value);
    for (int32_t i = 0; i < SEALIFT_HISTOGRAM_BUCKETS; ++i) {
      if (series.buckets[i] != 0) buckets.emplace_back(i, series.buckets[i]);
    }
  }

  nb::object self_ns() const {
    if (numbers.source == SEALIFT_SOURCE_KERNEL) return nb::int_(numbers.total_ns);
    if (numbers.burst_total_ns == 0) return nb::none();
    const double share = static_cast<double>(numbers.burst_self_ns) / static_cast<double>(numbers.burst_total_ns);
    return nb::int_(static_cast<uint64_t>(static_cast<double>(numbers.total_ns) * share));
  }

  nb::tuple object() const {
    nb::list pairs;
    for (const auto &[key, value] : labels) pairs.append(nb::make_tuple(to_text(key.c_str()), to_text(value.c_str())));
    nb::dict counts;
    for (const auto &[bucket, count] : buckets) counts[nb::int_(bucket)] = count;
    return nb::make_tuple(to_text(name.c_str()), source_name(numbers.source), sealift_scope_name(static_cast<sealift_scope>(numbers.scope)), to_text(model_id.c_str()),
                          nb::tuple(pairs), to_text(shapes.c_str()), to_text(origin.c_str()), numbers.count, numbers.samples, numbers.total_ns, self_ns(),
                          numbers.zero_count, counts, numbers.burst_samples);
  }
};

/* (operator, source, scope, model_id, labels, shapes, origin, count, samples, total_ns, self_ns or None, zero_count, {bucket: count}, burst samples) */
nb::list recorder_series() {
  std::vector<SeriesRow> rows;
  {
    const Unlocked unlocked;
    sealift_recorder_visit([](void *user, const sealift_series *series) { static_cast<std::vector<SeriesRow> *>(user)->emplace_back(*series); }, &rows);
  }
  nb::list all;
  for (const SeriesRow &row : rows) all.append(row.object());
  return all;
}

struct EventRow {
  sealift_burst_event numbers;  // its pointers are not used
  std::string name, model_id, shapes, origin;

  explicit EventRow(const sealift_burst_event &event) : numbers(event), name(event.name), model_id(event.model_id), shapes(event.shapes), origin(event.origin) {}

  nb::tuple object() const {
    return nb::make_tuple(to_text(name.c_str()), source_name(numbers.source), sealift_scope_name(static_cast<sealift_scope>(numbers.scope)), to_text(model_id.c_str()),
                          to_text(shapes.c_str()), to_text(origin.c_str()), numbers.start_ns, numbers.dur_ns, numbers.thread, numbers.burst);
  }
};

/* (operator, source, scope, model_id, shapes, origin, start_ns, dur_ns, thread, burst) */
nb::list take_events() {
  std::vector<EventRow> rows;
  {
    const Unlocked unlocked;
    sealift_recorder_take_events([](void *user, const sealift_burst_event *event) { static_cast<std::vector<EventRow> *>(user)->emplace_back(*event); }, &rows);
  }
  nb::list all;
  for (const EventRow &row : rows) all.append(row.object());
  return all;
}

// ---- API usage -------------------------------------------------------------------------------------------------------------

PyObject *deliver = nullptr;  // a Python function that tells the handler what it has not been told

int call_deliver(void *) {
  if (deliver == nullptr) return 0;
  PyObject *result = PyObject_CallNoArgs(deliver);
  if (result == nullptr) PyErr_WriteUnraisable(deliver);
  Py_XDECREF(result);
  return 0;
}

// PyTorch logs from inside the initialisation of statics, which other threads may wait for with the GIL: so it is never taken here. The
// interpreter's main thread delivers as soon as it runs Python.
void note_usage(void *, const char *, uint64_t) { Py_AddPendingCall(call_deliver, nullptr); }

void set_deliver(nb::handle function) {
  PyObject *before = deliver;
  deliver = function.is_none() ? nullptr : Py_NewRef(function.ptr());
  Py_XDECREF(before);
  sealift_set_api_usage_handler(deliver != nullptr ? note_usage : nullptr, nullptr);
}

nb::dict api_usage() {
  nb::dict keys;
  sealift_api_usage_visit([](void *user, const char *key, uint64_t when) { (*static_cast<nb::dict *>(user))[to_text(key)] = when; }, &keys);
  return keys;
}

nb::list take_model_files() {
  nb::list all;
  sealift_take_model_files([](void *user, const char *json, uint64_t when) { static_cast<nb::list *>(user)->append(nb::make_tuple(to_text(json), when)); }, &all);
  return all;
}

}  // namespace

void bind_observe(nb::module_ &m) {
  nb::class_<Info>(m, "DebugInfo")
      .def("__init__", [](Info *self, std::optional<nb::object> parent, const std::vector<std::pair<std::string, std::string>> &labels) {
             std::vector<sealift_label> list;
             list.reserve(labels.size());
             for (const auto &[key, value] : labels) list.push_back({key.c_str(), value.c_str()});
             const sealift_info *base = parent && !parent->is_none() ? nb::cast<Info *>(*parent)->handle : nullptr;
             sealift_info *made = sealift_info_create(base, static_cast<int32_t>(list.size()), list.data());
             if (made == nullptr) throw std::bad_alloc();
             new (self) Info(made); }, nb::arg("parent").none(), nb::arg("labels"))
      .def_prop_ro("labels", [](const Info &self) { return labels_of(self.handle); });
  nb::class_<TensorMeta>(m, "TensorMeta")
      .def_prop_ro("shape", [](const TensorMeta &self) { return nb::tuple(nb::cast(self.shape)); })
      .def_prop_ro("strides", [](const TensorMeta &self) -> nb::object { return self.is_strided ? nb::object(nb::tuple(nb::cast(self.strides))) : nb::none(); })
      .def_ro("dtype", &TensorMeta::dtype)
      .def_ro("device", &TensorMeta::device)
      .def("__repr__", [](const TensorMeta &self) {
        std::string text = self.dtype + "[";
        for (size_t i = 0; i < self.shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(self.shape[i]);
        return text + "] on " + self.device;
      });
  nb::class_<Record>(m, "Record")
      .def_prop_ro("name", [](const Record &self) { return to_text(self.name.c_str()); })
      .def_prop_ro("overload", [](const Record &self) { return to_text(self.overload.c_str()); })
      .def_ro("source", &Record::source)
      .def_ro("scope", &Record::scope)
      .def_prop_ro("model_name", [](const Record &self) { return to_text(self.model_name.c_str()); })
      .def_prop_ro("ops", [](const Record &self) { return to_text(self.ops.c_str()); })
      .def_prop_ro("origin", [](const Record &self) { return to_text(self.origin.c_str()); })
      .def_ro("kernel_id", &Record::kernel_id)
      .def_ro("inputs", &Record::inputs)
      .def_ro("sequence", &Record::sequence)
      .def_ro("thread_id", &Record::thread_id)
      .def_ro("forward_thread_id", &Record::forward_thread_id)
      .def_ro("start_ns", &Record::start_ns)
      .def_ro("dur_ns", &Record::dur_ns)
      .def_ro("weight", &Record::weight)
      .def_ro("debug_info", &Record::debug_info)
      .def_ro("entered", &Record::entered)
      .def("__repr__", [](const Record &self) { return to_text(("<" + self.source + " " + self.name + (self.dur_ns != 0 ? ", " + std::to_string(self.dur_ns) + " ns>" : ">")).c_str()); });

  m.def("observe_host", [](uint32_t version) { return reinterpret_cast<uintptr_t>(sealift_observe_get_host(version)); });
  m.def("end_callbacks", end_callbacks);
  m.def("add_observer", add_observer, nb::arg("on_enter").none(), nb::arg("on_exit").none(), nb::arg("failed"), nb::arg("probability"), nb::arg("scopes"),
        nb::arg("needs_inputs"), nb::arg("this_thread_only"));
  m.def("remove_observer", remove_observer);
  m.def("enable_thread", [](bool enabled) { return sealift_observe_enable_thread(enabled) != 0; });
  // +1: nothing that this thread does is reported until -1. For what only computes shapes.
  m.def("quiet", [](int delta) { sealift_observe_get_host(SEALIFT_OBSERVE_VERSION)->thread()->disabled += delta; });
  m.def("scope_name", [](int scope) { return sealift_scope_name(static_cast<sealift_scope>(scope)); });

  m.def("set_context_var", [](nb::handle var) {
    context_var = Py_NewRef(var.ptr());
    sealift_set_info_provider(info_of_context);
  });
  m.def("enter_info", enter_info, nb::arg("info").none());
  m.def("current_info", [] { return wrap_info(sealift_info_current()); });

  m.def("start_recorder", start_recorder, nb::arg("probability"), nb::arg("duty_cycle"), nb::arg("budget"), nb::arg("burst_duty_cycle"), nb::arg("host_probability"),
        nb::arg("scopes"), nb::arg("shapes"), nb::arg("labels"), nb::arg("max_series"), nb::arg("every"));
  m.def("stop_recorder", [] {
    const Unlocked unlocked;
    sealift_recorder_stop();
  });
  m.def("recorder_step", [] {
    const Unlocked unlocked;
    sealift_recorder_step();
  });
  m.def("adjust_recorder", adjust_recorder, nb::arg("probability"), nb::arg("duty_cycle"), nb::arg("budget"), nb::arg("burst_duty_cycle"), nb::arg("host_probability"),
        nb::arg("records"));
  m.def("begin_trace", begin_trace, nb::arg("max_calls"));
  m.def("end_trace", end_trace);
  m.def("trace_json", traced, nb::arg("first"), nb::arg("count"), nb::arg("pid"), nb::arg("base_ns"));
  m.def("free_trace", [] {
    const Unlocked unlocked;
    sealift_recorder_trace_free();
  });
  m.def("recorder_state", recorder_state);
  m.def("recorder_series", recorder_series);
  m.def("take_events", take_events);

  m.def("log_api_usage_once", [](const char *key) { return sealift_log_api_usage_once(key) != 0; });
  m.def("set_deliver", set_deliver, nb::arg("function").none());
  m.def("api_usage", api_usage);
  m.def("note_model_file", [](const char *json) { sealift_note_model_file(json); });
  m.def("take_model_files", take_model_files);
}
