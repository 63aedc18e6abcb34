// The values of a model's constants, as its library stores them: a version that never changes once it is made.
#pragma once

#include <stdint.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dlpack/dlpack.h"
#include "sealift_model.h"

namespace sealift::runtime {

struct WeightSet {
  std::vector<const void *> pointers;              // [num_weights]
  std::vector<std::shared_ptr<const void>> owned;  // [num_weights], NULL where the pointer lies in the package's mapping
};

// The active set and the inactive one. A context keeps the set that it runs with until a run finds a newer one, so a set lives as long as
// something may read it, and a run costs one atomic load.
class WeightSets {
 public:
  WeightSets(const sealift_model_api &api, const char *weights_file);

  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  std::shared_ptr<const WeightSet> active(uint64_t *version) const;

  // Failure E-CONSTANT-001. The inactive set becomes the active one with these constants replaced.
  void load(int32_t count, const char *const *fqns, const DLTensor *values);
  void swap();

 private:
  const sealift_model_api &api_;
  mutable std::mutex mutex_;
  std::shared_ptr<const WeightSet> active_, inactive_;
  std::atomic<uint64_t> version_{1};
};

}  // namespace sealift::runtime
