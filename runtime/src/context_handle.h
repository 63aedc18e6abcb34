// What sealift.h calls a context: the run itself, and what the runtime adds to it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "context.h"
#include "model.h"
#include "record.h"
#include "weight_set.h"

struct sealift_session {
  std::vector<sealift_context *> contexts;  // in the package's order; each keeps its model
  std::atomic<uint32_t> busy{0};

  sealift_session() = default;
  sealift_session(const sealift_session &) = delete;
  ~sealift_session();
};

struct sealift_package {
  std::vector<sealift_model *> models;  // in the order of their names

  sealift_package() = default;
  sealift_package(const sealift_package &) = delete;
  ~sealift_package() {
    for (sealift_model *model : models) model->release();
  }
};

struct sealift_context {
  sealift::runtime::Context core;  // first: the frame's host_context points to it
  sealift_model *model = nullptr;
  sealift_session *session = nullptr;  // NULL: it stands alone
  std::atomic<uint32_t> own_busy{0};
  std::atomic<uint32_t> *busy = &own_busy;  // the session's, so that its contexts take turns
  uint64_t weights_version = 0;
  std::shared_ptr<const sealift::runtime::WeightSet> weights;
  sealift::runtime::RecordStream records;
};

namespace sealift::runtime {

// 0: all slots are taken. `is_own`: the runtime's, beside the 16 that a user may add.
sealift_callback add_callback(sealift_on_begin on_begin, sealift_on_end on_end, void *user, double probability, bool is_own = true);
// False: there is none. `waits`: until no run is inside it; else those that are will still call on_end, and the slot is kept for them.
bool remove_callback(sealift_callback callback, bool waits = true);
// False: it was removed, and no run is inside it any more.
bool is_called(sealift_callback callback);

}  // namespace sealift::runtime
