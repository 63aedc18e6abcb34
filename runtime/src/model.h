// An opened model: the package, its library and weights, and what sealift.h tells about them. Immutable but for the constants.
#pragma once

#include <stdint.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "file.h"
#include "library_loader.h"
#include "package.h"
#include "sealift.h"
#include "weight_set.h"

struct sealift_model {
  using Package = sealift::runtime::Package;
  using Mapping = sealift::runtime::Mapping;

  static std::unique_ptr<sealift_model> open(const char *path, const sealift_open_options &options);
  // The package's small members are verified, and `weights` are this model's, verified or empty.
  sealift_model(std::shared_ptr<Package> package, const std::string &name, std::shared_ptr<Mapping> weights, const sealift_open_options &options);

  std::shared_ptr<Package> package;
  std::string name;
  std::shared_ptr<Mapping> weights_file;  // outlives the library's runs
  sealift::runtime::Library library;
  const sealift_model_api &api;
  int32_t isa;
  int32_t num_threads;
  sealift::runtime::WeightSets weight_sets;
  std::vector<sealift_tensor_info> inputs, outputs;
  std::vector<sealift_dim> dims;  // of all tensors
  std::vector<sealift_constant_info> constants;
  std::vector<sealift_kernel_info> kernels;
  std::unique_ptr<std::atomic<uint64_t>[]> kernel_keys;  // what the recorder knows each kernel by; 0: not asked for yet
  std::atomic<int64_t> owners{1};                        // the handle and each context

  void release() {
    if (owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // The bytes of a model's weights, mapped; empty where it has none.
  static std::shared_ptr<Mapping> map_weights(const Package &package, const Package::Member *member, bool verify);

 private:
  void describe();
};
