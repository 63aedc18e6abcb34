#include "strided_copy.h"

#include <string.h>

#include "sealift_model.h"

namespace sealift::runtime {

namespace {

struct Axis {
  int64_t size, dst, src;  // strides in bytes
};

template <class Element>
void copy_rows(char *dst, const char *src, const Axis *axes, int32_t rank) {
  if (rank == 0) {
    memcpy(dst, src, sizeof(Element));
    return;
  }
  const Axis axis = axes[0];
  if (rank > 1) {
    for (int64_t i = 0; i < axis.size; ++i) copy_rows<Element>(dst + i * axis.dst, src + i * axis.src, axes + 1, rank - 1);
    return;
  }
  if (axis.dst == static_cast<int64_t>(sizeof(Element)) && axis.src == axis.dst) {
    memcpy(dst, src, static_cast<size_t>(axis.size) * sizeof(Element));
    return;
  }
  for (int64_t i = 0; i < axis.size; ++i) memcpy(dst + i * axis.dst, src + i * axis.src, sizeof(Element));
}

int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

}  // namespace

void copy_strided(char *dst, const int64_t *dst_strides, const char *src, const int64_t *src_strides, const int64_t *shape, int32_t rank,
                  int32_t element_bytes) {
  // Sizes of 1 drop out; the rest is walked in the order of the destination's memory; neighbours that both sides walk as one are merged.
  Axis axes[SEALIFT_MAX_RANK];
  int32_t kept = 0;
  for (int32_t d = 0; d < rank; ++d) {
    if (shape[d] == 0) return;
    if (shape[d] == 1) continue;
    const Axis axis{shape[d], dst_strides[d] * element_bytes, src_strides[d] * element_bytes};
    int32_t at = kept++;
    while (at > 0 && magnitude(axes[at - 1].dst) < magnitude(axis.dst)) {
      axes[at] = axes[at - 1];
      --at;
    }
    axes[at] = axis;
  }
  int32_t merged = 0;
  for (int32_t d = 0; d < kept; ++d) {
    Axis *outer = merged > 0 ? &axes[merged - 1] : nullptr;
    if (outer != nullptr && outer->dst == axes[d].dst * axes[d].size && outer->src == axes[d].src * axes[d].size) {
      *outer = Axis{outer->size * axes[d].size, axes[d].dst, axes[d].src};
    } else {
      axes[merged++] = axes[d];
    }
  }
  switch (element_bytes) {
    case 1: copy_rows<uint8_t>(dst, src, axes, merged); break;
    case 2: copy_rows<uint16_t>(dst, src, axes, merged); break;
    case 4: copy_rows<uint32_t>(dst, src, axes, merged); break;
    default: copy_rows<uint64_t>(dst, src, axes, merged); break;
  }
}

}  // namespace sealift::runtime
