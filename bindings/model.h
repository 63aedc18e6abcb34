/* The native halves of sealift.Model and sealift.Context. */
#pragma once
#include <Python.h>

#include <mutex>
#include <string>
#include <vector>

#include "sealift.h"

/* Where a call finds an output's size before the run: fixed, or equal to an input's. */
struct SizeSource {
  int32_t input = -1; /* -1: `value` */
  int32_t dim = 0;
  int64_t value = 0;
};

struct OutputPlan {
  bool is_none = false;
  bool is_known = false; /* every size has a source */
  int numpy_type = -1;
  DLDataType dtype = {};
  std::string name;
  std::vector<SizeSource> shape;
};

enum class Structure { kSingle,
                       kTuple,
                       kList,
                       kOther }; /* of the outputs; kOther is built in Python, as nested inputs are */

struct Model {
  sealift_model *handle = nullptr;
  std::vector<std::string> input_names;
  std::vector<bool> changes_input; /* by input: a run writes into it */
  std::vector<OutputPlan> outputs;
  bool all_known = false; /* every output has a plan NumPy can allocate by */
  bool is_flat = false;   /* every argument is a tensor; `names` are the arguments' names, interned, in input order */
  std::vector<PyObject *> names;
  Structure structure = Structure::kOther;
  bool has_state = false;
  std::mutex state_lock; /* held by a run of a model with state through Model itself */
  int state_users = 0;   /* who holds or awaits it, guarded by the GIL: only the first takes it without giving up the GIL */

  PyObject *package = nullptr; /* what `handle` belongs to; NULL: it is closed here */
  /* Contexts that no run uses; guarded by the GIL. */
  std::vector<sealift_context *> idle;
  /* Runs below kReleaseAfterNs keep the GIL: giving it up would cost a small model more than it takes, and a thread that gives it up
   * may wait the interpreter's switch interval (5 ms) to have it back. */
  double run_ns = 1e9;
  int64_t run_bytes = 0;

  Model(const char *path, const char *name, int num_threads, int isa, int verify);
  /* A model of an opened package, whose Python object is kept alive. */
  Model(sealift_model *of_package, PyObject *package);
  ~Model();
  Model(const Model &) = delete;

 private:
  void describe();
};

struct Package {
  sealift_package *handle = nullptr;
  Package(const char *path, int num_threads, int isa, int verify);
  ~Package() { sealift_package_close(handle); }
  Package(const Package &) = delete;
};

struct Session {
  sealift_session *handle = nullptr;
  explicit Session(sealift_session *taken) : handle(taken) {}
  ~Session() { sealift_session_destroy(handle); }
  Session(const Session &) = delete;
};

struct Context {
  Model *model;
  PyObject *owner; /* the Python Model: kept alive */
  sealift_context *handle = nullptr;
  PyObject *session = nullptr; /* the Python Session that the context belongs to, kept alive */
  Context(Model *model, PyObject *owner, sealift_context *handle);
  ~Context();
  Context(const Context &) = delete;
};

/* model(*args, out=None, **kwargs), and context(...): NULL with an exception set. `context` may be NULL: one of the model's. */
PyObject *call_model(Model &model, PyObject *self, sealift_context *context, PyObject *args, PyObject *kwargs);

/* Raises what `status` stands for. */
bool raise_status(sealift_status status, const char *message);
