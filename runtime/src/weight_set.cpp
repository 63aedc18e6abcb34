#include "weight_set.h"

#include <stdlib.h>
#include <string.h>

#include <new>
#include <string>

#include "dtype.h"
#include "failure.h"
#include "pack_layout.h"
#include "strided_copy.h"

namespace sealift::runtime {

namespace {

std::shared_ptr<char> allocate(int64_t bytes) {
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, static_cast<size_t>(bytes < 64 ? 64 : bytes)) != 0) throw std::bad_alloc();
  return std::shared_ptr<char>(static_cast<char *>(memory), free);
}

std::string shape_text(int32_t rank, const int64_t *shape) {
  std::string text = "[";
  for (int32_t d = 0; d < rank; ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

// The values as the constant's row-major array; copied only where they are not that already.
const char *row_major(const sealift_constant_spec &constant, const DLTensor &value, std::shared_ptr<char> &copy) {
  const char *data = static_cast<const char *>(value.data) + value.byte_offset;
  if (value.strides == nullptr) return data;
  int64_t strides[SEALIFT_MAX_RANK], stride = 1;
  bool same = true;
  for (int32_t d = constant.rank - 1; d >= 0; --d) {
    strides[d] = stride;
    same = same && (value.strides[d] == stride || constant.shape[d] == 1);
    stride *= constant.shape[d];
  }
  if (same) return data;
  copy = allocate(row_major_bytes(constant));
  copy_strided(copy.get(), strides, data, value.strides, constant.shape, constant.rank, DTYPES[constant.dtype].bytes);
  return copy.get();
}

void check(const sealift_constant_spec &constant, const DLTensor &value) {
  auto refuse = [&](const std::string &what) { return Failure(SEALIFT_ERROR_CONSTANT, std::string("constant '") + constant.fqn + "' " + what); };
  char buffer[32];
  if (value.device.device_type != kDLCPU) throw refuse("is not on the CPU; help: copy it there first");
  if (!is_dtype(value.dtype, constant.dtype)) {
    throw refuse(std::string("has dtype ") + DTYPES[constant.dtype].name + ", the new value has " + dtype_name(value.dtype, buffer) + "; help: convert it");
  }
  if (value.ndim != constant.rank ||
      (value.ndim > 0 && (value.shape == nullptr || memcmp(value.shape, constant.shape, sizeof(int64_t) * static_cast<size_t>(constant.rank)) != 0))) {
    throw refuse("has shape " + shape_text(constant.rank, constant.shape) + ", the new value has " +
                 (value.shape == nullptr ? "none" : shape_text(value.ndim, value.shape)) + "; help: load the weights of the model that was compiled");
  }
  if (value.data == nullptr && row_major_bytes(constant) > 0) throw refuse("is given without data (NULL)");
}

}  // namespace

WeightSets::WeightSets(const sealift_model_api &api, const char *weights_file) : api_(api) {
  auto set = std::make_shared<WeightSet>();
  set->owned.resize(static_cast<size_t>(api.num_weights));
  for (int32_t i = 0; i < api.num_weights; ++i) set->pointers.push_back(weights_file + api.weights[i].offset_bytes);
  active_ = std::move(set);
}

std::shared_ptr<const WeightSet> WeightSets::active(uint64_t *version) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  *version = version_.load(std::memory_order_relaxed);
  return active_;
}

void WeightSets::load(int32_t count, const char *const *fqns, const DLTensor *values) {
  uint64_t version;
  auto set = std::make_shared<WeightSet>(*active(&version));
  for (int32_t i = 0; i < count; ++i) {
    int32_t found = -1;
    for (int32_t c = 0; c < api_.num_constants && found < 0; ++c) {
      if (fqns[i] != nullptr && strcmp(api_.constants[c].fqn, fqns[i]) == 0) found = c;
    }
    if (found < 0)
      throw Failure(SEALIFT_ERROR_CONSTANT,
                    std::string("the model has no constant '") + (fqns[i] == nullptr ? "" : fqns[i]) + "'; help: sealift_constant lists the names");
    const sealift_constant_spec &constant = api_.constants[found];
    check(constant, values[i]);
    std::shared_ptr<char> copy;
    const char *plain = row_major(constant, values[i], copy);
    for (int32_t w = 0; w < api_.num_weights; ++w) {
      if (api_.weights[w].constant != found) continue;
      const std::shared_ptr<char> stored = allocate(static_cast<int64_t>(api_.weights[w].size_bytes));
      pack(constant, api_.weights[w], plain, stored.get());
      const int64_t used = stored_bytes(constant, api_.weights[w]);
      memset(stored.get() + used, 0, static_cast<size_t>(api_.weights[w].size_bytes) - static_cast<size_t>(used));
      set->pointers[static_cast<size_t>(w)] = stored.get();
      set->owned[static_cast<size_t>(w)] = stored;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  inactive_ = std::move(set);
}

void WeightSets::swap() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (inactive_ == nullptr) throw Failure(SEALIFT_ERROR_ARGUMENT, "there is no inactive set of constants; help: call load_constants first (C: sealift_load_constants)");
  active_.swap(inactive_);
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace sealift::runtime
