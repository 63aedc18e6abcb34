/* sealift._runtime: the classes that sealift/load.py builds on. */
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>

#include "crc32c.h"
#include "fleet.h"
#include "gil.h"
#include "model.h"
#include "observe.h"
#include "peak.h"
#include "tensors.h"

namespace nb = nanobind;

namespace {

[[noreturn]] void raise(sealift_status status, const char *message) {
  raise_status(status, message);
  throw nb::python_error();
}

bool is_number(const char *text) { return *text && text[strspn(text, "0123456789")] == '\0'; }

SizeSource find_size(sealift_model *model, const sealift_dim &dim, bool *found) {
  SizeSource source;
  source.value = dim.max;
  if (dim.min == dim.max) return source;
  for (int32_t i = 0; i < sealift_num_inputs(model); i++) {
    const sealift_tensor_info *input = sealift_input_info(model, i);
    for (int32_t d = 0; d < input->rank; d++)
      if (!is_number(dim.text) && strcmp(input->dims[d].text, dim.text) == 0) {
        source.input = i;
        source.dim = d;
        source.value = input->dims[d].max;
        return source;
      }
  }
  *found = false;
  return source;
}

nb::tuple describe(const sealift_tensor_info *info) {
  nb::list dims;
  for (int32_t d = 0; d < (info->is_none ? 0 : info->rank); d++) dims.append(nb::make_tuple(info->dims[d].text, info->dims[d].min, info->dims[d].max));
  return nb::make_tuple(info->name, nb::make_tuple(info->dtype.code, info->dtype.bits), nb::tuple(dims), info->is_none != 0);
}

nb::tuple inputs_of(const Model &m) {
  nb::list all;
  for (int32_t i = 0; i < sealift_num_inputs(m.handle); i++) all.append(describe(sealift_input_info(m.handle, i)));
  return nb::tuple(all);
}

nb::tuple outputs_of(const Model &m) {
  nb::list all;
  for (int32_t i = 0; i < sealift_num_outputs(m.handle); i++) all.append(describe(sealift_output_info(m.handle, i)));
  return nb::tuple(all);
}

nb::tuple constants_of(const Model &m) {
  nb::list all;
  for (int32_t i = 0; i < sealift_num_constants(m.handle); i++) {
    const sealift_constant_info *c = sealift_constant(m.handle, i);
    nb::list shape;
    for (int32_t d = 0; d < c->rank; d++) shape.append(c->shape[d]);
    all.append(nb::make_tuple(c->fqn, nb::make_tuple(c->dtype.code, c->dtype.bits), nb::tuple(shape)));
  }
  return nb::tuple(all);
}

nb::tuple kernels_of(const Model &m) {
  nb::list all;
  for (int32_t i = 0; i < sealift_num_kernels(m.handle); i++) {
    const sealift_kernel_info *k = sealift_kernel(m.handle, i);
    all.append(nb::make_tuple(k->id, k->name, k->ops, k->origin));
  }
  return nb::tuple(all);
}

void load_constants(Model &m, const nb::sequence &names, const nb::sequence &values) {
  const size_t count = nb::len(names);
  std::vector<std::string> texts(count);
  std::vector<const char *> fqns(count);
  std::vector<DLTensor> tensors(count);
  auto borrowed = std::make_unique<Borrowed[]>(count);
  for (size_t i = 0; i < count; i++) {
    texts[i] = nb::cast<std::string>(names[i]);
    fqns[i] = texts[i].c_str();
    nb::object value = values[i];
    const DLPackExchangeAPI *api;
    const Kind kind = kind_of(value.ptr(), &api);
    if (!borrow(value.ptr(), kind, api, "constant", fqns[i], &borrowed[i])) throw nb::python_error();
    tensors[i] = borrowed[i].tensor;
  }
  char message[1024];
  sealift_status status;
  {
    const Unlocked unlocked;
    status = sealift_load_constants(m.handle, static_cast<int32_t>(count), fqns.data(), tensors.data(), message, sizeof message);
  }
  if (status != SEALIFT_OK) raise(status, message);
}

void swap_constants(Model &m) {
  char message[1024];
  const sealift_status status = sealift_swap_constants(m.handle, message, sizeof message);
  if (status != SEALIFT_OK) raise(status, message);
}

void set_structure(Model &m, bool is_flat, const nb::tuple &names, int structure, bool has_state) {
  m.is_flat = is_flat;
  for (PyObject *name : m.names) Py_DECREF(name);
  m.names.clear();
  for (nb::handle item : names) {
    PyObject *name = Py_NewRef(item.ptr());
    PyUnicode_InternInPlace(&name);
    m.names.push_back(name);
  }
  m.structure = static_cast<Structure>(structure);
  m.has_state = has_state;
}

PyObject *model_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return call_model(*nb::inst_ptr<Model>(self), self, nullptr, args, kwargs);
}

PyObject *context_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  Context &context = *nb::inst_ptr<Context>(self);
  return call_model(*context.model, context.owner, context.handle, args, kwargs);
}

template <PyObject *(*Call)(PyObject *, PyObject *, PyObject *)>
PyType_Slot *call_slots() {
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void *>(Call)}, {0, nullptr}};
  return slots;
}

/* By sealift_open or sealift_package_open, without the GIL; a null name: which model is left to them. */
template <class Handle>
Handle *opened(sealift_status (*open)(const char *, const sealift_open_options *, Handle **, char *, size_t), const char *path, const char *name,
               int num_threads, int isa, int verify) {
  sealift_open_options options;
  sealift_open_options_init(&options);
  options.model_name = name;
  options.num_threads = num_threads;
  options.isa = isa;
  options.verify = verify;
  Handle *handle = nullptr;
  char message[4096];
  sealift_status status;
  {
    const Unlocked unlocked;
    status = open(path, &options, &handle, message, sizeof message);
  }
  if (status != SEALIFT_OK) raise(status, message);
  return handle;
}

}  // namespace

Model::Model(const char *path, const char *name, int num_threads, int isa, int verify) : handle(opened(sealift_open, path, name, num_threads, isa, verify)) {
  describe();
}

Model::Model(sealift_model *of_package, PyObject *of) : handle(of_package), package(Py_NewRef(of)) { describe(); }

void Model::describe() {
  for (int32_t i = 0; i < sealift_num_inputs(handle); i++) {
    input_names.emplace_back(sealift_input_info(handle, i)->name);
    changes_input.push_back(sealift_input_is_changed(handle, i) != 0);
  }
  all_known = true;
  for (int32_t i = 0; i < sealift_num_outputs(handle); i++) {
    const sealift_tensor_info *info = sealift_output_info(handle, i);
    OutputPlan plan;
    plan.is_none = info->is_none != 0;
    plan.is_known = true;
    plan.dtype = info->dtype;
    plan.numpy_type = numpy_type(info->dtype);
    plan.name = info->name;
    if (!plan.is_none)
      for (int32_t d = 0; d < info->rank; d++) plan.shape.push_back(find_size(handle, info->dims[d], &plan.is_known));
    all_known = all_known && plan.is_known && (plan.is_none || plan.numpy_type >= 0);
    outputs.push_back(std::move(plan));
  }
}

Model::~Model() {
  for (sealift_context *context : idle) sealift_context_destroy(context);
  for (PyObject *name : names) Py_DECREF(name);
  if (package)
    Py_DECREF(package);
  else
    sealift_close(handle);
}

Package::Package(const char *path, int num_threads, int isa, int verify) : handle(opened(sealift_package_open, path, nullptr, num_threads, isa, verify)) {}

Context::Context(Model *m, PyObject *python_model, sealift_context *context) : model(m), owner(Py_NewRef(python_model)), handle(context) {}

Context::~Context() {
  sealift_context_destroy(handle); /* leaves a session's alone */
  Py_XDECREF(session);
  Py_DECREF(owner);
}

NB_MODULE(_runtime, m) {
  prepare_for_the_end();
  if (!init_numpy()) throw nb::python_error();
  nb::set_leak_warnings(false); /* a model that lives until the process ends is no leak */

  nb::class_<Model>(m, "Model", nb::type_slots(call_slots<model_call>()), nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Model *self, const std::string &path, std::optional<std::string> name, int num_threads, int isa, int verify) {
            new (self) Model(path.c_str(), name ? name->c_str() : nullptr, num_threads, isa, verify);
          },
          nb::arg("path"), nb::arg("name") = nb::none(), nb::arg("num_threads") = 0, nb::arg("isa") = -1, nb::arg("verify") = 1)
      .def("__init__", [](Model *self, nb::handle package, int index) { new (self) Model(sealift_package_model(nb::inst_ptr<Package>(package)->handle, index), package.ptr()); })
      .def_prop_ro("name", [](const Model &self) { return sealift_model_name(self.handle); })
      .def_prop_ro("isa", [](const Model &self) { return sealift_model_isa(self.handle); })
      .def_prop_ro("num_threads", [](const Model &self) { return sealift_model_num_threads(self.handle); })
      .def_prop_ro("_inputs", inputs_of)
      .def_prop_ro("_outputs", outputs_of)
      .def_prop_ro("_constants", constants_of)
      .def_prop_ro("_kernels", kernels_of)
      .def_prop_ro("_input_spec", [](const Model &self) { return sealift_input_spec(self.handle); })
      .def_prop_ro("_output_spec", [](const Model &self) { return sealift_output_spec(self.handle); })
      .def("_member",
           [](const Model &self, const std::string &name) -> nb::object {
             size_t bytes = 0;
             const char *data = sealift_member(self.handle, name.c_str(), &bytes);
             return data ? nb::object(nb::bytes(data, bytes)) : nb::none();
           })
      .def("_load_constants", load_constants)
      .def("_swap_constants", swap_constants)
      .def_prop_ro("_changed", [](const Model &self) {
        nb::list all;
        for (size_t i = 0; i < self.changes_input.size(); i++) all.append(static_cast<bool>(self.changes_input[i]));
        return nb::tuple(all); })
      .def("_set_structure", set_structure)
      .def("_context", [](nb::handle self) {
        Model &model = *nb::inst_ptr<Model>(self);
        sealift_context *context = nullptr;
        char message[1024];
        const sealift_status status = sealift_context_create(model.handle, &context, message, sizeof message);
        if (status != SEALIFT_OK) raise(status, message);
        return new Context(&model, self.ptr(), context); }, nb::rv_policy::take_ownership);

  nb::class_<Context>(m, "Context", nb::type_slots(call_slots<context_call>()))
      .def("reset",
           [](Context &self) {
             char message[1024];
             const sealift_status status = sealift_context_reset(self.handle, message, sizeof message);
             if (status != SEALIFT_OK) raise(status, message);
           })
      .def("clone", [](const Context &self) {
        sealift_context *copy = nullptr;
        char message[1024];
        const sealift_status status = sealift_context_clone(self.handle, &copy, message, sizeof message);
        if (status != SEALIFT_OK) raise(status, message);
        return new Context(self.model, self.owner, copy); }, nb::rv_policy::take_ownership)
      .def("__reduce_ex__", [](const Context &, nb::handle) {
        raise_code("E-ARG-001", "a context is memory of this process: it cannot be pickled or copied; help: clone() copies its state, and a process of "
                                "its own loads the model itself");
        throw nb::python_error(); });

  m.def("peak_flops_per_s", peak_flops_per_s, nb::arg("seconds"), nb::call_guard<Unlocked>());
  nb::class_<Package>(m, "Package")
      .def(
          "__init__",
          [](Package *self, const std::string &path, int num_threads, int isa, int verify) { new (self) Package(path.c_str(), num_threads, isa, verify); },
          nb::arg("path"), nb::arg("num_threads") = 0, nb::arg("isa") = -1, nb::arg("verify") = 1)
      .def_prop_ro("_num_models", [](const Package &self) { return sealift_package_num_models(self.handle); })
      .def("_session", [](const Package &self) {
        sealift_session *session = nullptr;
        char message[1024];
        const sealift_status status = sealift_session_create(self.handle, &session, message, sizeof message);
        if (status != SEALIFT_OK) raise(status, message);
        return new Session(session); }, nb::rv_policy::take_ownership);

  nb::class_<Session>(m, "Session")
      .def("_context", [](nb::handle self, nb::handle model, int index) {
             sealift_context *context = sealift_session_context(nb::inst_ptr<Session>(self)->handle, index);
             Context *made = new Context(nb::inst_ptr<Model>(model), model.ptr(), context);
             made->session = Py_NewRef(self.ptr());
             return made; }, nb::rv_policy::take_ownership)
      .def("reset", [](Session &self) {
             char message[1024];
             const sealift_status status = sealift_session_reset(self.handle, message, sizeof message);
             if (status != SEALIFT_OK) raise(status, message); })
      .def("clone", [](const Session &self) {
        sealift_session *copy = nullptr;
        char message[1024];
        const sealift_status status = sealift_session_clone(self.handle, &copy, message, sizeof message);
        if (status != SEALIFT_OK) raise(status, message);
        return new Session(copy); }, nb::rv_policy::take_ownership);

  m.def("crc32c", [](nb::handle data, uint32_t crc) {
          Py_buffer view;
          if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) < 0) throw nb::python_error();
          {
            const Unlocked unlocked;
            crc = crc32c(view.buf, static_cast<size_t>(view.len), crc);
          }
          PyBuffer_Release(&view);
          return crc; }, nb::arg("data"), nb::arg("crc") = 0);
  m.def("machine_isas", [] { return sealift_machine_isas(); });
  m.def("version", [] { return sealift_version(); });
  bind_observe(m);
  bind_fleet(m);
}
