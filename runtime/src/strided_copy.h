// Copies between arrays of different strides.
#pragma once

#include <stdint.h>

namespace sealift::runtime {

// dst[i] = src[i] for every index i of `shape`. Strides in elements, any sign, source strides also 0; the arrays do not overlap.
void copy_strided(char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides, const int64_t *shape, int32_t rank,
                  int32_t element_bytes);

}  // namespace sealift::runtime
