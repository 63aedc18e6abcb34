// Kernels of branch.
#pragma once

#include "kernels/loops/loops.h"

namespace SEALIFT_NS {

void k0_mean(void *arg, int64_t begin, int64_t end, int32_t worker);
void k1_mean_gt(void *arg, int64_t begin, int64_t end, int32_t worker);
void k0_cond_false_neg_(void *arg, int64_t begin, int64_t end, int32_t worker);
void k3_scalar_tensor(void *arg, int64_t begin, int64_t end, int32_t worker);
void k0_loop_body_add(void *arg, int64_t begin, int64_t end, int32_t worker);
void k0_loop_cond_lt_(void *arg, int64_t begin, int64_t end, int32_t worker);

}  // namespace SEALIFT_NS
