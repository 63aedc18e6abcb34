// How a weight lies in the weights file: from a row-major constant to its stored form and back.
#pragma once

#include <stdint.h>
#include <string.h>

#include "dtype.h"
#include "sealift_model.h"

namespace sealift::runtime {

inline constexpr int64_t PANEL = 32;  // columns side by side; the same for every instruction set

// A stored form is, block by block (a convolution's groups), panels of [k][width]. Its element (block, column, row) is the row-major constant's at
//   block * block_stride + column * column_stride + (row / inner) * outer_stride + (row % inner) * inner_stride
struct PanelForm {
  int64_t blocks, columns, rows, width;
  int64_t block_stride, column_stride, inner, inner_stride, outer_stride;

  int64_t elements() const { return blocks * ((columns + width - 1) / width) * width * rows; }
};

inline int64_t product_from(const sealift_constant_spec &constant, int32_t first) {
  int64_t product = 1;
  for (int32_t d = first; d < constant.rank; ++d) product *= constant.shape[d];
  return product;
}

inline int64_t row_major_bytes(const sealift_constant_spec &constant) { return product_from(constant, 0) * DTYPES[constant.dtype].bytes; }

// False for a layout that this build does not know, or that does not fit the constant.
inline bool panel_form(const sealift_constant_spec &constant, const sealift_weight_spec &weight, PanelForm *form) {
  const int64_t first = constant.rank > 0 ? constant.shape[0] : 1, rest = product_from(constant, 1);
  switch (weight.layout) {
    case SEALIFT_PANEL32: *form = {1, first, rest, PANEL, 0, rest, rest, 1, 0}; return true;
    case SEALIFT_PANEL32_T: *form = {1, rest, first, PANEL, 0, 1, first, rest, 0}; return true;
    case SEALIFT_CONV_PANEL32: {
      if (constant.rank < 2 || weight.groups < 1 || first % weight.groups != 0) return false;
      const int64_t channels = constant.shape[1], taps = product_from(constant, 2);
      *form = {weight.groups, first / weight.groups, rest, PANEL, first / weight.groups * rest, rest, channels, taps, 1};
      return true;
    }
    case SEALIFT_CONV_TRANSPOSE_PANEL32: {
      if (constant.rank < 3 || weight.groups < 1 || first % weight.groups != 0) return false;
      const int64_t channels = first / weight.groups, taps = product_from(constant, 2);
      *form = {weight.groups, constant.shape[1], channels * taps, PANEL, channels * rest, taps, channels, rest, 1};
      return true;
    }
    case SEALIFT_CONV_DEPTHWISE: *form = {1, first, rest, first > 0 ? first : 1, 0, rest, rest, 1, 0}; return constant.rank >= 3 && constant.shape[1] == 1;
    default: return false;
  }
}

// Bytes of the stored form, without the padding between weights; -1 for a layout that this build does not know.
inline int64_t stored_bytes(const sealift_constant_spec &constant, const sealift_weight_spec &weight) {
  PanelForm form;
  if (weight.layout == SEALIFT_ROW_MAJOR) return row_major_bytes(constant);
  return panel_form(constant, weight, &form) ? form.elements() * DTYPES[constant.dtype].bytes : -1;
}

namespace pack_detail {

template <class Element, bool TO_PANELS>
void copy_panels(Element *panels, Element *plain, const PanelForm &form) {
  Element *panel = panels;
  for (int64_t block = 0; block < form.blocks; ++block) {
    for (int64_t first = 0; first < form.columns; first += form.width, panel += form.rows * form.width) {
      const int64_t used = form.columns - first < form.width ? form.columns - first : form.width;
      if (TO_PANELS && used < form.width) memset(panel, 0, sizeof(Element) * static_cast<size_t>(form.width * form.rows));
      for (int64_t row = 0; row < form.rows; ++row) {
        const int64_t offset = (row / form.inner) * form.outer_stride + (row % form.inner) * form.inner_stride;
        for (int64_t j = 0; j < used; ++j) {
          Element &stored = panel[row * form.width + j], &value = plain[block * form.block_stride + (first + j) * form.column_stride + offset];
          if (TO_PANELS) {
            stored = value;
          } else {
            value = stored;
          }
        }
      }
    }
  }
}

template <bool TO_PANELS>
void copy_panels(void *panels, void *plain, const PanelForm &form, int32_t element_bytes) {
  switch (element_bytes) {
    case 1: copy_panels<uint8_t, TO_PANELS>(static_cast<uint8_t *>(panels), static_cast<uint8_t *>(plain), form); break;
    case 2: copy_panels<uint16_t, TO_PANELS>(static_cast<uint16_t *>(panels), static_cast<uint16_t *>(plain), form); break;
    case 4: copy_panels<uint32_t, TO_PANELS>(static_cast<uint32_t *>(panels), static_cast<uint32_t *>(plain), form); break;
    default: copy_panels<uint64_t, TO_PANELS>(static_cast<uint64_t *>(panels), static_cast<uint64_t *>(plain), form); break;
  }
}

}  // namespace pack_detail

// stored <- row-major values of the constant.
inline void pack(const sealift_constant_spec &constant, const sealift_weight_spec &weight, const void *values, void *stored) {
  PanelForm form;
  if (weight.layout != SEALIFT_ROW_MAJOR && panel_form(constant, weight, &form)) {
    pack_detail::copy_panels<true>(stored, const_cast<void *>(values), form, DTYPES[constant.dtype].bytes);
  } else {
    memcpy(stored, values, static_cast<size_t>(row_major_bytes(constant)));
  }
}

// Row-major values of the constant <- stored.
inline void unpack(const sealift_constant_spec &constant, const sealift_weight_spec &weight, const void *stored, void *values) {
  PanelForm form;
  if (weight.layout != SEALIFT_ROW_MAJOR && panel_form(constant, weight, &form)) {
    pack_detail::copy_panels<false>(const_cast<void *>(stored), values, form, DTYPES[constant.dtype].bytes);
  } else {
    memcpy(values, stored, static_cast<size_t>(row_major_bytes(constant)));
  }
}

}  // namespace sealift::runtime
