// An opened model: the package, its library and weights, and what sealift.h tells about them. Immutable but for the constants.
#pragma once

#include <stdint.h>

#include <atomic>
#include <string>
#include <vector>

#include "file.h"
#include "library_loader.h"
#include "package.h"
#include "sealift.h"
#include "weight_set.h"

struct sealift_model {
  sealift_model(const char *path, const sealift_open_options &options);

  sealift::runtime::Package package;
  std::string name;
  sealift::runtime::Mapping weights_file;  // outlives the library's runs
  sealift::runtime::Library library;
  const sealift_model_api &api;
  int32_t isa;
  int32_t num_threads;
  sealift::runtime::WeightSets weight_sets;
  std::vector<sealift_tensor_info> inputs, outputs;
  std::vector<sealift_dim> dims;  // of all tensors
  std::vector<sealift_constant_info> constants;
  std::vector<sealift_kernel_info> kernels;
  std::atomic<int64_t> owners{1};  // the handle and each context

  void release() {
    if (owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  void describe();
};
