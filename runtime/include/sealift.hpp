// sealift.hpp: sealift.h for C++17. Header-only; link libsealift.
//
//   sealift::Model model("mlp.pt2");
//   sealift::Context context(model);
//   std::vector<float> x(8 * 10), y(8 * 1);
//   context.run_into({sealift::view(x, {8, 10})}, {sealift::view(y, {8, 1})});   // no allocation after the first run
//
//   std::vector<sealift::Tensor> outputs = context.run({sealift::view(x, {8, 10})});   // or sealift allocates the outputs
//   float first = outputs[0].data<float>()[0];
//
// Every failure throws a sealift::Error whose what() says what is wrong and the way out ("[E-INPUT-003] input 'x': ... help: ...").
// A Model may be shared by any number of threads; a Context belongs to one run at a time.
#ifndef SEALIFT_HPP
#define SEALIFT_HPP

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sealift.h"

namespace sealift {

// ---- errors --------------------------------------------------------------------------------------------------------------

// The base of all of them. status() is one of sealift_status, code() its text ("E-INPUT-003").
class Error : public std::runtime_error {
 public:
  Error(sealift_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
  sealift_status status() const noexcept { return status_; }
  const char *code() const noexcept { return sealift_status_code(status_); }

 private:
  sealift_status status_;
};

struct ArgumentError : Error {
  using Error::Error;
};  // E-ARG
struct FileError : Error {
  using Error::Error;
};  // E-FILE: cannot be opened or read
struct PackageError : Error {
  using Error::Error;
};  // E-PACKAGE: damaged, changed, too new, or without such a model
struct MachineError : Error {
  using Error::Error;
};  // E-ISA, E-LIBRARY: this machine or system cannot run it
struct InputError : Error {
  using Error::Error;
};  // E-INPUT: inputs or outputs that do not fit
struct RunError : Error {
  using Error::Error;
};  // E-RUN: an index, an assertion, a division inside the model
struct MemoryError : Error {
  using Error::Error;
};  // E-MEMORY
struct ConstantError : Error {
  using Error::Error;
};  // E-CONSTANT
struct BusyError : Error {
  using Error::Error;
};  // E-CONTEXT: the context runs on another thread

[[noreturn]] inline void throw_error(sealift_status status, const char *message) {
  switch (status) {
    case SEALIFT_ERROR_FILE: throw FileError(status, message);
    case SEALIFT_ERROR_PACKAGE:
    case SEALIFT_ERROR_INTEGRITY:
    case SEALIFT_ERROR_VERSION:
    case SEALIFT_ERROR_MODEL_NAME: throw PackageError(status, message);
    case SEALIFT_ERROR_ISA:
    case SEALIFT_ERROR_LIBRARY: throw MachineError(status, message);
    case SEALIFT_ERROR_INPUT_COUNT:
    case SEALIFT_ERROR_DTYPE:
    case SEALIFT_ERROR_SHAPE:
    case SEALIFT_ERROR_DEVICE:
    case SEALIFT_ERROR_OUTPUT: throw InputError(status, message);
    case SEALIFT_ERROR_INDEX:
    case SEALIFT_ERROR_ASSERT:
    case SEALIFT_ERROR_DIVIDE: throw RunError(status, message);
    case SEALIFT_ERROR_MEMORY: throw MemoryError(status, message);
    case SEALIFT_ERROR_CONSTANT: throw ConstantError(status, message);
    case SEALIFT_ERROR_BUSY: throw BusyError(status, message);
    default: throw ArgumentError(status, message);
  }
}

namespace detail {

// Calls function(..., err, err_len) and throws where it fails.
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments) {
  char message[1024];
  const sealift_status status = function(arguments..., message, sizeof message);
  if (status != SEALIFT_OK) throw_error(status, message);
}

template <class Element>
struct Dtype;
template <>
struct Dtype<float> {
  static constexpr DLDataType value{kDLFloat, 32, 1};
};
template <>
struct Dtype<double> {
  static constexpr DLDataType value{kDLFloat, 64, 1};
};
template <>
struct Dtype<std::int8_t> {
  static constexpr DLDataType value{kDLInt, 8, 1};
};
template <>
struct Dtype<std::int16_t> {
  static constexpr DLDataType value{kDLInt, 16, 1};
};
template <>
struct Dtype<std::int32_t> {
  static constexpr DLDataType value{kDLInt, 32, 1};
};
template <>
struct Dtype<std::int64_t> {
  static constexpr DLDataType value{kDLInt, 64, 1};
};
template <>
struct Dtype<std::uint8_t> {
  static constexpr DLDataType value{kDLUInt, 8, 1};
};
template <>
struct Dtype<bool> {
  static constexpr DLDataType value{kDLBool, 8, 1};
};
template <>
struct Dtype<std::complex<float>> {
  static constexpr DLDataType value{kDLComplex, 64, 1};
};

}  // namespace detail

inline constexpr DLDataType BFLOAT16{kDLBfloat, 16, 1};  // C++17 has no type for these two
inline constexpr DLDataType FLOAT16{kDLFloat, 16, 1};

// A pointer and a length, from a vector, an array or {a, b}; borrowed for the call.
template <class Element>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(const Element *data, std::size_t size) : data_(data), size_(size) {}
  Span(const std::vector<Element> &elements) : Span(elements.data(), elements.size()) {}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Winit-list-lifetime"  // it lives until the call ends, as the caller's expression does
  constexpr Span(std::initializer_list<Element> elements) : data_(elements.begin()), size_(elements.size()) {}
#pragma GCC diagnostic pop
  constexpr const Element *data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr const Element *begin() const { return data_; }
  constexpr const Element *end() const { return data_ + size_; }
  constexpr const Element &operator[](std::size_t index) const { return data_[index]; }

 private:
  const Element *data_ = nullptr;
  std::size_t size_ = 0;
};

// ---- tensors -------------------------------------------------------------------------------------------------------------

// Memory of the caller's, as an input or a preallocated output. Row-major unless strides (in elements) are given.
class TensorView {
 public:
  TensorView(void *data, DLDataType dtype, Span<std::int64_t> shape, Span<std::int64_t> strides = {})
      : data_(data), dtype_(dtype), rank_(static_cast<std::int32_t>(shape.size())), has_strides_(strides.size() != 0) {
    if (shape.size() > MAX_RANK || (has_strides_ && strides.size() != shape.size()))
      throw ArgumentError(SEALIFT_ERROR_ARGUMENT, "[E-ARG-001] a tensor has at most 16 dimensions, and as many strides or none");
    for (std::size_t d = 0; d < shape.size(); ++d) shape_[d] = shape[d];
    for (std::size_t d = 0; d < strides.size(); ++d) strides_[d] = strides[d];
  }

  // Valid as long as this view stays where it is.
  DLTensor dlpack() const {
    return DLTensor{
        data_, DLDevice{kDLCPU, 0}, rank_, dtype_, const_cast<std::int64_t *>(shape_), has_strides_ ? const_cast<std::int64_t *>(strides_) : nullptr, 0};
  }

 private:
  static constexpr std::size_t MAX_RANK = 16;
  void *data_;
  DLDataType dtype_;
  std::int32_t rank_;
  bool has_strides_;
  std::int64_t shape_[MAX_RANK] = {}, strides_[MAX_RANK] = {};
};

// view(pointer, {8, 10}) or view(vector, {8, 10}): the dtype follows from the element type.
template <class Element>
TensorView view(Element *data, Span<std::int64_t> shape, Span<std::int64_t> strides = {}) {
  using Plain = std::remove_const_t<Element>;
  return TensorView(const_cast<Plain *>(data), detail::Dtype<Plain>::value, shape, strides);
}

template <class Element>
TensorView view(std::vector<Element> &elements, Span<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  if (count != static_cast<std::int64_t>(elements.size())) {
    throw ArgumentError(SEALIFT_ERROR_ARGUMENT,
                        "[E-ARG-001] a vector of " + std::to_string(elements.size()) + " elements is viewed as a tensor of " + std::to_string(count));
  }
  return view(elements.data(), shape);
}

// A tensor that sealift allocated, freed with it. Empty where the model returns None.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(DLManagedTensorVersioned *managed) : managed_(managed) {}

  explicit operator bool() const { return managed_ != nullptr; }
  const DLTensor &dlpack() const { return managed_->dl_tensor; }
  DLDataType dtype() const { return dlpack().dtype; }
  Span<std::int64_t> shape() const { return {dlpack().shape, static_cast<std::size_t>(dlpack().ndim)}; }
  Span<std::int64_t> strides() const { return {dlpack().strides, static_cast<std::size_t>(dlpack().ndim)}; }
  std::int64_t size() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape()) count *= size;
    return count;
  }
  void *data() const { return dlpack().data; }
  // The elements, in the order of strides(). Throws where the dtype is another.
  template <class Element>
  Element *data() const {
    constexpr DLDataType wanted = detail::Dtype<Element>::value;
    if (dtype().code != wanted.code || dtype().bits != wanted.bits)
      throw InputError(SEALIFT_ERROR_DTYPE, "[E-INPUT-002] the tensor has another dtype than the one asked for");
    return static_cast<Element *>(data());
  }
  // Hands it to another DLPack consumer.
  DLManagedTensorVersioned *release() { return managed_.release(); }

 private:
  struct Free {
    void operator()(DLManagedTensorVersioned *managed) const { managed->deleter(managed); }
  };
  std::unique_ptr<DLManagedTensorVersioned, Free> managed_;
};

// ---- models --------------------------------------------------------------------------------------------------------------

struct OpenOptions {
  std::string model_name;        // empty: the only model, else the one called "model"
  std::int32_t num_threads = 0;  // 0: every core the process may use
  std::int32_t isa = -1;         // a bit number of sealift_machine_isas(); -1: the best
  bool verify_weights = true;    // the code is always verified
};

namespace detail {

inline sealift_open_options c_options(const OpenOptions &options) {
  sealift_open_options chosen;
  sealift_open_options_init(&chosen);
  chosen.model_name = options.model_name.empty() ? nullptr : options.model_name.c_str();
  chosen.num_threads = options.num_threads;
  chosen.isa = options.isa;
  chosen.verify = options.verify_weights ? 1 : 0;
  return chosen;
}

}  // namespace detail

// An opened package. Copies share it. The contexts made from it keep it alive.
class Model {
 public:
  explicit Model(const std::string &path, const OpenOptions &options = {}) {
    const sealift_open_options chosen = detail::c_options(options);
    sealift_model *model = nullptr;
    detail::call(sealift_open, path.c_str(), &chosen, &model);
    model_.reset(model, sealift_close);
  }

  std::string_view name() const { return sealift_model_name(get()); }
  std::string_view isa() const { return sealift_model_isa(get()); }
  std::int32_t num_threads() const { return sealift_model_num_threads(get()); }
  Span<sealift_tensor_info> inputs() const { return {sealift_input_info(get(), 0), static_cast<std::size_t>(sealift_num_inputs(get()))}; }
  // Whether a run changes this input in place: its tensor must be writable, in memory of its own.
  bool is_changed(std::size_t input) const { return sealift_input_is_changed(get(), static_cast<std::int32_t>(input)) != 0; }
  Span<sealift_tensor_info> outputs() const { return {sealift_output_info(get(), 0), static_cast<std::size_t>(sealift_num_outputs(get()))}; }
  Span<sealift_constant_info> constants() const { return {sealift_constant(get(), 0), static_cast<std::size_t>(sealift_num_constants(get()))}; }
  Span<sealift_kernel_info> kernels() const { return {sealift_kernel(get(), 0), static_cast<std::size_t>(sealift_num_kernels(get()))}; }
  // A member of the package; empty if it has none of that name. Valid as long as the model.
  std::string_view member(const std::string &name) const {
    std::size_t bytes = 0;
    const char *data = sealift_member(get(), name.c_str(), &bytes);
    return {data == nullptr ? "" : data, bytes};
  }

  // Packs new values beside the active ones; runs go on meanwhile. What is not named keeps its value. swap_constants() makes them active.
  void load_constants(Span<std::pair<std::string, TensorView>> values) {
    std::vector<const char *> fqns;
    std::vector<DLTensor> tensors;
    for (const auto &[fqn, value] : values) {
      fqns.push_back(fqn.c_str());
      tensors.push_back(value.dlpack());
    }
    detail::call(sealift_load_constants, get(), static_cast<std::int32_t>(fqns.size()), fqns.data(), tensors.data());
  }
  void swap_constants() { detail::call(sealift_swap_constants, get()); }

  sealift_model *get() const { return model_.get(); }

 private:
  friend class Package;
  explicit Model(std::shared_ptr<sealift_model> model) : model_(std::move(model)) {}
  std::shared_ptr<sealift_model> model_;
};

// Every model of a package, read and verified once. Copies share it.
class Package {
 public:
  explicit Package(const std::string &path, const OpenOptions &options = {}) {
    const sealift_open_options chosen = detail::c_options(options);
    sealift_package *package = nullptr;
    detail::call(sealift_package_open, path.c_str(), &chosen, &package);
    package_.reset(package, sealift_package_close);
  }

  std::size_t size() const { return static_cast<std::size_t>(sealift_package_num_models(get())); }
  Model model(std::size_t index) const { return share(sealift_package_model(get(), static_cast<std::int32_t>(index))); }
  Model model(const std::string &name) const { return share(sealift_package_find(get(), name.c_str())); }
  // The position of a model, for Session::context().
  std::size_t find(const std::string &name) const {
    for (std::size_t i = 0; i < size(); ++i)
      if (name == sealift_model_name(sealift_package_model(get(), static_cast<std::int32_t>(i)))) return i;
    throw PackageError(SEALIFT_ERROR_MODEL_NAME, "[E-PACKAGE-004] the package holds no model '" + name + "'");
  }

  sealift_package *get() const { return package_.get(); }

 private:
  Model share(sealift_model *model) const {
    if (model == nullptr) throw PackageError(SEALIFT_ERROR_MODEL_NAME, "[E-PACKAGE-004] the package holds no such model");
    return Model(std::shared_ptr<sealift_model>(package_, model));
  }
  std::shared_ptr<sealift_package> package_;
};

// ---- running -------------------------------------------------------------------------------------------------------------

// The arena and the state of a model. Make one for each thread that runs, and reuse it.
class Context {
 public:
  explicit Context(Model model) : model_(std::move(model)) {
    sealift_context *context = nullptr;
    detail::call(sealift_context_create, model_.get(), &context);
    context_.reset(context);
  }

  const Model &model() const { return model_; }

  // sealift allocates the outputs.
  std::vector<Tensor> run(Span<TensorView> inputs) {
    fill(inputs_, inputs);
    std::vector<DLManagedTensorVersioned *> managed(model_.outputs().size());
    detail::call(sealift_run, get(), static_cast<std::int32_t>(inputs_.size()), static_cast<const DLTensor *>(inputs_.data()),
                 static_cast<std::int32_t>(managed.size()), managed.data());
    std::vector<Tensor> outputs;
    outputs.reserve(managed.size());
    for (DLManagedTensorVersioned *tensor : managed) outputs.emplace_back(tensor);
    return outputs;
  }

  // The outputs lie where the caller says; one view for each output, in order.
  void run_into(Span<TensorView> inputs, Span<TensorView> outputs) {
    fill(inputs_, inputs);
    fill(outputs_, outputs);
    detail::call(sealift_run_into, get(), static_cast<std::int32_t>(inputs_.size()), static_cast<const DLTensor *>(inputs_.data()),
                 static_cast<std::int32_t>(outputs_.size()), static_cast<const DLTensor *>(outputs_.data()));
  }

  // What shapes the outputs have for these inputs; nothing runs.
  std::vector<std::vector<std::int64_t>> output_shapes(Span<TensorView> inputs) {
    fill(inputs_, inputs);
    const Span<sealift_tensor_info> infos = model_.outputs();
    const std::unique_ptr<std::int64_t[][16]> shapes(new std::int64_t[infos.size() + 1][16]);
    std::int64_t (*no_strides)[16] = nullptr;
    detail::call(sealift_output_shapes, get(), static_cast<std::int32_t>(inputs_.size()), static_cast<const DLTensor *>(inputs_.data()), shapes.get(),
                 no_strides);
    std::vector<std::vector<std::int64_t>> result;
    for (std::size_t i = 0; i < infos.size(); ++i) result.emplace_back(shapes[i], shapes[i] + infos[i].rank);
    return result;
  }

  // Puts the model's state back to where it began.
  void reset() { detail::call(sealift_context_reset, get()); }
  // A second context that goes on from this one's state.
  Context clone() const {
    sealift_context *context = nullptr;
    detail::call(sealift_context_clone, static_cast<const sealift_context *>(context_.get()), &context);
    return Context(model_, context);
  }

  sealift_context *get() const { return context_.get(); }

 private:
  friend class Session;
  Context(Model model, sealift_context *context) : model_(std::move(model)), context_(context) {}

  static void fill(std::vector<DLTensor> &tensors, Span<TensorView> views) {
    tensors.clear();
    for (const TensorView &view : views) tensors.push_back(view.dlpack());
  }

  struct Destroy {
    void operator()(sealift_context *context) const { sealift_context_destroy(context); }
  };
  Model model_;  // outlives the context
  std::unique_ptr<sealift_context, Destroy> context_;
  std::vector<DLTensor> inputs_, outputs_;  // kept between runs, so that a run allocates nothing
};

// The models of a package over one state: what prefill writes into the cache, decode reads.
//
//   sealift::Package package("gpt2.pt2");
//   sealift::Session session(package);
//   session.context("prefill").run({...});
//   session.context("decode").run({...});
//
// One run at a time; one session for each text.
class Session {
 public:
  explicit Session(Package package) : package_(std::move(package)) {
    sealift_session *session = nullptr;
    detail::call(sealift_session_create, static_cast<const sealift_package *>(package_.get()), &session);
    take(session);
  }

  const Package &package() const { return package_; }
  // Valid as long as the session, where it is. Its reset() resets the session; its clone() throws.
  Context &context(std::size_t model) { return contexts_.at(model); }
  Context &context(const std::string &name) { return contexts_.at(package_.find(name)); }

  void reset() { detail::call(sealift_session_reset, get()); }
  // A second session that goes on from this one's state.
  Session clone() const {
    sealift_session *session = nullptr;
    detail::call(sealift_session_clone, static_cast<const sealift_session *>(get()), &session);
    return Session(package_, session);
  }

  sealift_session *get() const { return session_.get(); }

 private:
  Session(Package package, sealift_session *session) : package_(std::move(package)) { take(session); }

  void take(sealift_session *session) {
    session_.reset(session);
    for (std::size_t i = 0; i < package_.size(); ++i)
      contexts_.push_back(Context(package_.model(i), sealift_session_context(session, static_cast<std::int32_t>(i))));
  }

  struct Destroy {
    void operator()(sealift_session *session) const { sealift_session_destroy(session); }
  };
  Package package_;
  std::unique_ptr<sealift_session, Destroy> session_;
  std::vector<Context> contexts_;  // gone first; what is the session's, sealift_context_destroy leaves alone
};

}  // namespace sealift

#endif
