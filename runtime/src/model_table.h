// Checks on the table that a model library returns, made once when it is loaded, so that the code that runs it need not.
#pragma once

#include <stddef.h>

#include "sealift_model.h"
#include "status.h"

namespace sealift::runtime {

// Whether this host can use the table. A violation is our own bug or a library of another version: E-LIBRARY-001.
sealift_status check_model_table(const sealift_model_api *api, ErrorText err);

// [num_inputs], or NULL where the model changes none of its inputs.
inline const uint8_t *changed_inputs(const sealift_model_api &api) {
  return api.struct_bytes < offsetof(sealift_model_api, changes_input) + sizeof(api.changes_input) ? nullptr : api.changes_input;
}

// The instruction sets that the library has code for.
uint32_t built_isas(const sealift_model_api &api);

// Fills sizes[0, num_sizes). The symbols are in their slots.
inline void compute_sizes(const sealift_model_api &api, int64_t *sizes) {
  if (api.compute_sizes != nullptr) api.compute_sizes(sizes);
}

}  // namespace sealift::runtime
