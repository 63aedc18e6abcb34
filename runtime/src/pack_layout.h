// How a weight lies in the weights file: from a row-major constant to its stored form and back.
#pragma once

#include <stdint.h>
#include <string.h>

#include "dtype.h"
#include "sealift_model.h"

namespace sealift::runtime {

inline constexpr int64_t PANEL = 32;  // rows of the [n, k] matrix side by side; the same for every instruction set

// A constant of rank r is the [n, k] matrix of its first dimension by all the others; element (row, column) of the matrix that panels are made
// of stands at row * row_stride + column * column_stride of the row-major constant.
struct MatrixSize {
  int64_t n, k;
  int64_t row_stride, column_stride;
};

inline MatrixSize matrix_size(const sealift_constant_spec &constant, int32_t layout) {
  MatrixSize size{constant.rank > 0 ? constant.shape[0] : 1, 1, 0, 1};
  for (int32_t d = 1; d < constant.rank; ++d) size.k *= constant.shape[d];
  size.row_stride = size.k;
  if (layout == SEALIFT_PANEL32_T) size = {size.k, size.n, 1, size.k};
  return size;
}

inline int64_t row_major_bytes(const sealift_constant_spec &constant) {
  const MatrixSize size = matrix_size(constant, SEALIFT_ROW_MAJOR);
  return size.n * size.k * DTYPES[constant.dtype].bytes;
}

// Bytes of the stored form, without the padding between weights; -1 for a layout that this build does not know.
inline int64_t stored_bytes(const sealift_constant_spec &constant, int32_t layout) {
  const MatrixSize size = matrix_size(constant, layout);
  switch (layout) {
    case SEALIFT_ROW_MAJOR: return row_major_bytes(constant);
    case SEALIFT_PANEL32:
    case SEALIFT_PANEL32_T: return (size.n + PANEL - 1) / PANEL * PANEL * size.k * DTYPES[constant.dtype].bytes;
    default: return -1;
  }
}

namespace pack_detail {

template <class Element, bool TO_PANELS>
void copy_panels(Element *panels, Element *rows, MatrixSize size) {
  for (int64_t first = 0; first < size.n; first += PANEL) {
    const int64_t width = size.n - first < PANEL ? size.n - first : PANEL;
    Element *panel = panels + first * size.k;
    if (TO_PANELS && width < PANEL) memset(panel, 0, sizeof(Element) * static_cast<size_t>(PANEL * size.k));
    for (int64_t k = 0; k < size.k; ++k) {
      for (int64_t j = 0; j < width; ++j) {
        Element &stored = panel[k * PANEL + j], &plain = rows[(first + j) * size.row_stride + k * size.column_stride];
        if (TO_PANELS) {
          stored = plain;
        } else {
          plain = stored;
        }
      }
    }
  }
}

template <bool TO_PANELS>
void copy_panels(void *panels, void *rows, MatrixSize size, int32_t element_bytes) {
  switch (element_bytes) {
    case 1: copy_panels<uint8_t, TO_PANELS>(static_cast<uint8_t *>(panels), static_cast<uint8_t *>(rows), size); break;
    case 2: copy_panels<uint16_t, TO_PANELS>(static_cast<uint16_t *>(panels), static_cast<uint16_t *>(rows), size); break;
    case 4: copy_panels<uint32_t, TO_PANELS>(static_cast<uint32_t *>(panels), static_cast<uint32_t *>(rows), size); break;
    default: copy_panels<uint64_t, TO_PANELS>(static_cast<uint64_t *>(panels), static_cast<uint64_t *>(rows), size); break;
  }
}

}  // namespace pack_detail

// stored <- row-major values of the constant.
inline void pack(const sealift_constant_spec &constant, int32_t layout, const void *values, void *stored) {
  if (layout != SEALIFT_ROW_MAJOR) {
    pack_detail::copy_panels<true>(stored, const_cast<void *>(values), matrix_size(constant, layout), DTYPES[constant.dtype].bytes);
  } else {
    memcpy(stored, values, static_cast<size_t>(row_major_bytes(constant)));
  }
}

// Row-major values of the constant <- stored.
inline void unpack(const sealift_constant_spec &constant, int32_t layout, const void *stored, void *values) {
  if (layout != SEALIFT_ROW_MAJOR) {
    pack_detail::copy_panels<false>(const_cast<void *>(stored), values, matrix_size(constant, layout), DTYPES[constant.dtype].bytes);
  } else {
    memcpy(values, stored, static_cast<size_t>(row_major_bytes(constant)));
  }
}

}  // namespace sealift::runtime
