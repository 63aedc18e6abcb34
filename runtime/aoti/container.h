// One loaded model under PyTorch's loaders: its weights, its contexts, and the embedded host that runs it.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "constant_map.h"
#include "context.h"
#include "sealift_model.h"
#include "torch_shim.h"

namespace sealift::runtime {

class Container {
 public:
  // NULL on failure. `self` is an address in this library: its file tells where the weights lie.
  static Container *create(const sealift_model_api *api, void *caller, void *self, ErrorText err);
  static void destroy(Container *container);

  // Safe for any number of threads. Runs of a model with state wait for each other, the others do not.
  // The input handles are taken in every case; the output handles are given away.
  sealift_status run(TensorHandle *inputs, size_t num_inputs, TensorHandle *outputs, size_t num_outputs, bool single_threaded, ErrorText err);

  const sealift_model_api &api() const { return *api_; }
  int32_t torch_dtype(int32_t dtype) const { return shim_.dtypes[dtype]; }
  const TorchShim &shim() const { return shim_; }

  sealift_status update_constants(const ConstantEntry *entries, size_t count, bool use_inactive, bool must_be_all, ErrorText err);
  sealift_status update_from_blob(const uint8_t *blob, ErrorText err);
  sealift_status swap_constants(ErrorText err);
  void free_inactive();
  // Copies of the constants, row-major; the handles are the container's until its next extraction or end.
  sealift_status extract_constants(bool use_inactive, const ConstantEntry **entries, size_t *count, ErrorText err);

 private:
  struct Buffer;
  struct WeightSet;
  struct Runner;

  Container() = default;
  ~Container();

  sealift_status map_weights(void *self, ErrorText err);
  sealift_status run_taken(Runner &runner, TensorHandle *inputs, TensorHandle *outputs, bool single_threaded, ErrorText err);
  sealift_status describe(TensorHandle tensor, const char *kind, const char *name, DLTensor *described, ErrorText err) const;
  sealift_status make_output(const Context &core, int32_t output, TensorHandle *handle, void **data, ErrorText err) const;
  sealift_status copy_constant(int32_t constant, TensorHandle value, void **plain, Buffer **copy, ErrorText err) const;
  Runner *take_runner(ErrorText err);
  void give_runner(Runner *runner);
  WeightSet *new_set(const WeightSet *base) const;
  void drop_set(WeightSet *set);
  void put_set(WeightSet *set, bool use_inactive);
  void drop_extracted();
  int32_t state_of(int32_t constant) const;

  static uint64_t record_begin(sealift_frame *frame, int32_t kernel);
  static void record_end(sealift_frame *frame, int32_t kernel, uint64_t token);

  const sealift_model_api *api_ = nullptr;
  TorchShim shim_ = {};
  int32_t isa_ = 0, num_threads_ = 1;
  const char *weights_file_ = nullptr;
  size_t weights_file_bytes_ = 0;
  sealift_host host_ = {};
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;    // the free runners, the sets and their counts; held for moments
  pthread_mutex_t states_ = PTHREAD_MUTEX_INITIALIZER;  // a model's state: held for a run
  pthread_mutex_t update_ = PTHREAD_MUTEX_INITIALIZER;  // one change of the constants at a time
  Runner *free_runners_ = nullptr;
  WeightSet *active_ = nullptr, *inactive_ = nullptr;
  ConstantEntry *extracted_ = nullptr;
  size_t num_extracted_ = 0;
};

}  // namespace sealift::runtime
