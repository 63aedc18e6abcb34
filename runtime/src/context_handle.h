// What sealift.h calls a context: the run itself, and what the runtime adds to it.
#pragma once

#include <atomic>
#include <memory>

#include "context.h"
#include "model.h"
#include "record.h"
#include "weight_set.h"

struct sealift_context {
  sealift::runtime::Context core;  // first: the frame's host_context points to it
  sealift_model *model = nullptr;
  std::atomic<uint32_t> busy{0};
  uint64_t weights_version = 0;
  std::shared_ptr<const sealift::runtime::WeightSet> weights;
  sealift::runtime::RecordStream records;
};

namespace sealift::runtime {

sealift_callback add_callback(sealift_on_begin on_begin, sealift_on_end on_end, void *user, double probability);  // 0: all slots are taken
bool remove_callback(sealift_callback callback);                                                                  // false: there is none

}  // namespace sealift::runtime
