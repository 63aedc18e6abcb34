// Kernels of block.
#pragma once

#include "kernels/loops/loops.h"

namespace SEALIFT_NS {

void k0_layer_norm(void *arg, int64_t begin, int64_t end, int32_t worker);

}  // namespace SEALIFT_NS
