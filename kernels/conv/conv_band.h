// Copies of parts of x with the zeros around them (conv.h says when): some rows, in the order the kernels want, or the inputs of one tile.
#ifndef SEALIFT_KERNELS_CONV_CONV_BAND_H
#define SEALIFT_KERNELS_CONV_CONV_BAND_H

#include "conv_plan.h"

namespace SEALIFT_NS {
namespace {

// n floats, n <= kWideColumns or kTileColumns, the far end at any stride.
void gather_channels(float *to, const float *from, int64_t stride, int64_t n) {
  if (stride == 1) __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  else
    for (int64_t j = 0; j < n; j++) to[j] = from[j * stride];
}
void scatter_channels(float *to, int64_t stride, const float *from, int64_t n) {
  if (stride == 1) __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  else
    for (int64_t j = 0; j < n; j++) to[j * stride] = from[j];
}

// Copies the rows of an image of x that lines [h0, h1) need.
View copy_band(const Plan &p, const float *image, int64_t h0, int64_t h1, float *to) {
  const ConvF32 &c = p.conv;
  const int64_t reach = (c.kernel_h - 1) * c.dilation_h;
  View v;
  if (p.transposed) { // the rows that exist
    const int64_t top = h0 + c.pad_h - reach, bottom = h1 - 1 + c.pad_h;
    v.h0 = top <= 0 ? 0 : divide_up(top, c.stride_h);
    v.h1 = bottom / c.stride_h + 1 < c.in_h ? bottom / c.stride_h + 1 : c.in_h;
    if (v.h1 < v.h0) v.h1 = v.h0;
    v.w0 = 0, v.w1 = c.in_w;
  } else { // with the zeros around them
    v.h0 = h0 * c.stride_h - c.pad_h, v.h1 = (h1 - 1) * c.stride_h - c.pad_h + reach + 1;
    v.w0 = -c.pad_w, v.w1 = v.w0 + (c.out_w - 1) * c.stride_w + (c.kernel_w - 1) * c.dilation_w + 1;
  }
  v.x = to, v.column = c.in_c, v.row = (v.w1 - v.w0) * c.in_c;
  const int64_t from = v.w0 < 0 ? 0 : v.w0, until = v.w1 < c.in_w ? v.w1 : c.in_w;
  for (int64_t h = v.h0; h < v.h1; h++, to += v.row) {
    if (h < 0 || h >= c.in_h || from >= until) {
      for (int64_t i = 0; i < v.row; i++) to[i] = 0.0f;
      continue;
    }
    const float *line = image + h * c.x_strides[1];
    float *row = to + (from - v.w0) * c.in_c;
    for (float *zero = to; zero < row; zero++) *zero = 0.0f;
    if (c.x_strides[3] == 1 && c.x_strides[2] == c.in_c) {
      __builtin_memcpy(row, line + from * c.in_c, static_cast<size_t>((until - from) * c.in_c) * sizeof(float));
      row += (until - from) * c.in_c;
    } else if (c.in_c == 3) {
      int64_t w = from;
      const float *at = line + w * c.x_strides[2], *green = at + c.x_strides[3], *blue = green + c.x_strides[3];
      if (c.x_strides[2] == 1) {
        for (; w + 4 < until; w += 4, row += 12, at += 4, green += 4, blue += 4) { // each store's fourth float is the next one's first
          const Quads q = transpose(Quads{{load_quad(at), load_quad(green), load_quad(blue), Quad{}}});
          for (int i = 0; i < 4; i++) store_quad(row + 3 * i, q.row[i]);
        }
      }
      for (; w < until; w++, row += 3, at += c.x_strides[2], green += c.x_strides[2], blue += c.x_strides[2]) row[0] = *at, row[1] = *green, row[2] = *blue;
    } else if (c.x_strides[3] == 1) {
      for (int64_t w = from; w < until; w++, row += c.in_c) gather_channels(row, line + w * c.x_strides[2], 1, c.in_c);
    } else if (c.x_strides[2] != 1 || c.in_c < 4) {
      for (int64_t w = from; w < until; w++, row += c.in_c) gather_channels(row, line + w * c.x_strides[2], c.x_strides[3], c.in_c);
    } else { // channels first: four by four
      const int64_t width = until - from;
      for (int64_t channel = 0; channel < c.in_c; channel += 4) {
        const float *at = line + from + channel * c.x_strides[3];
        int64_t w = 0;
        if (channel + 4 <= c.in_c) {
          for (; w + 4 <= width; w += 4) {
            const Quads q = transpose(load_quads(at + w, c.x_strides[3]));
            for (int i = 0; i < 4; i++) store_quad(row + (w + i) * c.in_c + channel, q.row[i]);
          }
        }
        const int64_t some = c.in_c - channel < 4 ? c.in_c - channel : 4;
        for (; w < width; w++)
          for (int64_t i = 0; i < some; i++) row[w * c.in_c + channel + i] = at[w + i * c.x_strides[3]];
      }
      row += width * c.in_c;
    }
    for (float *end = to + v.row; row < end; row++) *row = 0.0f;
  }
  return v;
}

// The inputs that the taps of a tile's positions want, `columns` of each row from (h, w) on.
void copy_window(const Plan &p, const View &v, int64_t h, int64_t w, int64_t columns, float *to) {
  const int64_t bottom = h + (p.conv.kernel_h - 1) * p.conv.dilation_h + 1, channels = p.in_channels;
  const int64_t from = w < v.w0 ? v.w0 : w, until = w + columns < v.w1 ? w + columns : v.w1;
  for (; h < bottom; h++) {
    float *const end = to + columns * channels;
    if (h >= v.h0 && h < v.h1 && from < until) {
      for (float *first = to + (from - w) * channels; to < first; to++) *to = 0.0f;
      __builtin_memcpy(to, v.x + (h - v.h0) * v.row + (from - v.w0) * channels, static_cast<size_t>((until - from) * channels) * sizeof(float));
      to += (until - from) * channels;
    }
    for (; to < end; to++) *to = 0.0f;
  }
}

} // namespace
} // namespace SEALIFT_NS
#endif
