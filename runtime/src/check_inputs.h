// Whether a call's inputs are what the model takes. Generic over the model's table; the runtime and the AOTInductor entry share it.
#pragma once

#include "dlpack/dlpack.h"
#include "sealift_model.h"
#include "status.h"

namespace sealift::runtime {

enum class Sizes { SAME,
                   CHANGED };

// Checks count, dtype, device, rank and sizes of the inputs. `sizes` [num_sizes] holds the previous call's if `known`; the symbols are read
// from the inputs and the other sizes computed again only where a symbol changed (*changed says so). After a failure `sizes` is not valid.
sealift_status check_inputs(const sealift_model_api &api, int32_t num_inputs, const DLTensor *inputs, int64_t *sizes, bool known, Sizes *changed,
                            ErrorText err);

}  // namespace sealift::runtime
