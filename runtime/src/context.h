// One run at a time: sizes, arena, states, staging, and the frame that a model library sees. The runtime's contexts and the AOTInductor
// entry share it, so it uses no exception and nothing of the C++ library.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"
#include "sealift_model.h"
#include "status.h"

namespace sealift::runtime {

// Memory that only grows, 64-byte aligned; its content is lost when it does.
class Block {
 public:
  Block() = default;
  ~Block();
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  bool reserve(int64_t bytes);
  char *data() const { return data_; }

 private:
  char *data_ = nullptr;
  int64_t size_bytes_ = 0;
};

class Context {
 public:
  Context() = default;
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  // `api` passed check_model_table(). The states are not set yet. `shared`: [num_states] memory of another context's, which outlives this
  // one, NULL where the state is this context's own; NULL: all are.
  sealift_status init(const sealift_model_api &api, int32_t isa, int32_t num_workers, const sealift_host &host, void *const *shared, ErrorText err);

  void set_weights(const void *const *weights) { frame_.weights = weights; }
  // Of the states of its own.
  void reset_states();
  void copy_states(const Context &from);

  // A run: prepare(), then for each output, either set_output() or all of them by bind_outputs(); then execute().
  // prepare: checks the inputs, computes the sizes, copies inputs that are not row-major. The inputs stay borrowed until execute() returns,
  // which copies those back that the model changes.
  sealift_status prepare(int32_t num_inputs, const DLTensor *inputs, ErrorText err);
  // Only the sizes: what output_shape() and the like answer from.
  sealift_status measure(int32_t num_inputs, const DLTensor *inputs, ErrorText err);
  const int64_t *output_strides(int32_t output) const { return output_strides_ + output * SEALIFT_MAX_RANK; }
  void output_shape(int32_t output, int64_t *shape) const;
  int64_t output_bytes(int32_t output) const { return output_bytes_[output]; }
  // Memory that is dense in the spec's order and not an input's.
  void set_output(int32_t output, void *data) { outputs_[output] = data; }
  // The caller's tensors, any strides.
  sealift_status bind_outputs(int32_t num_outputs, const DLTensor *outputs, const DLTensor *inputs, ErrorText err);
  sealift_status execute(ErrorText err);
  // After execute(): outputs that are an input's copy or went through staging, into the tensors given to bind_outputs().
  void deliver_outputs(const DLTensor *outputs, const DLTensor *inputs);
  // One output that aliases an input, into dense row-major memory.
  void copy_alias(int32_t output, const DLTensor *inputs, void *data) const;

  sealift_frame &frame() { return frame_; }
  const sealift_model_api &api() const { return *api_; }
  int32_t num_workers() const { return num_workers_; }
  // For this run only: 1 keeps it on the caller's thread.
  void limit_workers(int32_t workers) { frame_.num_workers = workers; }

  static void parallel_for(sealift_frame *frame, int64_t count, int64_t grain, sealift_task_fn fn, void *arg);

 private:
  enum class Pool { NOT_ASKED,
                    HELD,
                    REFUSED };

  sealift_status resize(ErrorText err);
  sealift_status stage_inputs(const DLTensor *inputs, ErrorText err);
  sealift_status check_changed(const DLTensor *inputs, ErrorText err) const;
  void return_changed() const;
  sealift_status run_error(ErrorText err) const;

  sealift_frame frame_ = {};
  int32_t (*run_)(sealift_frame *) = nullptr;
  const sealift_model_api *api_ = nullptr;
  int64_t *sizes_ = nullptr;
  const void **inputs_ = nullptr;
  void **outputs_ = nullptr;
  int64_t *input_strides_ = nullptr;   // [num_inputs][SEALIFT_MAX_RANK], row-major
  int64_t *output_strides_ = nullptr;  // [num_outputs][SEALIFT_MAX_RANK], in the spec's order
  int64_t *input_bytes_ = nullptr;
  int64_t *output_bytes_ = nullptr;
  int32_t num_workers_ = 1;
  bool sizes_known_ = false;
  bool must_deliver_ = false;
  Pool pool_ = Pool::NOT_ASKED;
  const uint8_t *changed_ = nullptr;  // [num_inputs]; NULL: no input is changed
  const DLTensor *given_ = nullptr;   // the inputs of this run, where one is changed
  void **states_ = nullptr;
  bool *owns_state_ = nullptr;
  int64_t *state_bytes_ = nullptr;
  void *tables_ = nullptr;  // owns the arrays above
  Block work_;              // arena, then the workers' scratch
  Block input_staging_, output_staging_, state_memory_;
};

}  // namespace sealift::runtime
