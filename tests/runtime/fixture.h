// What the runtime's test programs share: the packages of test_model.c, and short ways to call sealift.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "sealift.h"

inline std::string package(const std::string &name) { return std::string(SEALIFT_TEST_PACKAGES) + "/" + name + ".pt2"; }

// A DLTensor with its own shape, strides and data.
template <class Element>
struct Array {
  std::vector<Element> data;
  std::vector<std::int64_t> shape, strides;
  DLTensor tensor{};

  Array(std::vector<std::int64_t> sizes, DLDataType dtype, std::vector<std::int64_t> steps = {}, std::int64_t elements = -1)
      : shape(std::move(sizes)), strides(std::move(steps)) {
    if (strides.empty()) {
      strides.resize(shape.size());
      std::int64_t stride = 1;
      for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
    }
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    data.resize(static_cast<std::size_t>(elements < 0 ? count : elements));
    tensor = DLTensor{data.data(), {kDLCPU, 0}, static_cast<std::int32_t>(shape.size()), dtype, shape.data(), strides.data(), 0};
  }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
};

constexpr DLDataType F32{kDLFloat, 32, 1}, F64{kDLFloat, 64, 1}, I64{kDLInt, 64, 1}, BOOL{kDLBool, 8, 1};

using Floats = Array<float>;

struct Handle {  // a model and one context
  sealift_model *model = nullptr;
  sealift_context *context = nullptr;

  explicit Handle(const std::string &path, int num_threads = 1, const char *name = nullptr) {
    sealift_open_options options;
    sealift_open_options_init(&options);
    options.num_threads = num_threads;
    options.model_name = name;
    char err[512] = "";
    if (sealift_open(path.c_str(), &options, &model, err, sizeof err) != SEALIFT_OK) check::failed(__FILE__, __LINE__, err);
    if (sealift_context_create(model, &context, err, sizeof err) != SEALIFT_OK) check::failed(__FILE__, __LINE__, err);
  }
  ~Handle() {
    sealift_context_destroy(context);
    sealift_close(model);
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
};

inline sealift_status run_into(sealift_context *context, std::vector<DLTensor> inputs, std::vector<DLTensor> outputs, std::string *message = nullptr) {
  char err[1024] = "";
  const sealift_status status = sealift_run_into(context, static_cast<std::int32_t>(inputs.size()), inputs.data(),
                                                 static_cast<std::int32_t>(outputs.size()), outputs.data(), err, sizeof err);
  if (message != nullptr) *message = err;
  return status;
}

// MODEL_LINEAR's y [batch, 3] for x [batch, 4].
inline void fill_linear(Floats &x) {
  for (std::int64_t row = 0; row < x.shape[0]; ++row) {
    for (std::int64_t k = 0; k < 4; ++k) x.data[static_cast<std::size_t>(row * x.strides[0] + k * x.strides[1])] = static_cast<float>((row * 7 + k * 3) % 11);
  }
}

inline float linear(std::int64_t row, int n, const float (&bias)[3] = {10, 20, 30}) {
  static const float w[3][4] = {{1, 2, 3, 4}, {0.5f, 0, -1, 2}, {-1, 1, -1, 1}};
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += w[n][k] * static_cast<float>((row * 7 + k * 3) % 11);
  return sum + bias[n];
}

inline bool is_linear(const Floats &y) {
  for (std::int64_t row = 0; row < y.shape[0]; ++row) {
    for (int n = 0; n < 3; ++n) {
      if (y.data[static_cast<std::size_t>(row * y.strides[0] + n * y.strides[1])] != linear(row, n)) return false;
    }
  }
  return true;
}
