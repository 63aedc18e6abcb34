// Kernels of mlp.
#pragma once

#include "kernels/loops/loops.h"

namespace SEALIFT_NS {



}  // namespace SEALIFT_NS
