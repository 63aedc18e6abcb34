// Kernels of mixed.
#pragma once

#include "kernels/loops/loops.h"

namespace SEALIFT_NS {

void k0_embedding(void *arg, int64_t begin, int64_t end, int32_t worker);
void k1_cat_to_amax_sub_and_more(void *arg, int64_t begin, int64_t end, int32_t worker);
void k2_gt_sum(void *arg, int64_t begin, int64_t end, int32_t worker);
void k3_argmax(void *arg, int64_t begin, int64_t end, int32_t worker);
void k4_to_add(void *arg, int64_t begin, int64_t end, int32_t worker);
void k5_to_mul(void *arg, int64_t begin, int64_t end, int32_t worker);

}  // namespace SEALIFT_NS
